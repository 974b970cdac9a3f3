"""Kernels → better kernels: cut, fused, axes coalesced, written out, operands packed, results in place; one a file.

``order`` puts writers before readers, ``single_evaluation`` gives each sum one place. Imports lowering and schedules.
"""
