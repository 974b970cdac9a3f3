"""Regions → LLVM IR: a function for each kernel, with explicit vectors and masks, and one for each region.

Imports regions and schedules, which say what is written, ``llvm``, which writes it, and the runtime's layout.
"""
