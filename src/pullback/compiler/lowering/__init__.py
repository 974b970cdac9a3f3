"""Graph → kernels: blocks and loops in their order, which nodes are stored, and a kernel for each of them.

Imports the passes' rewriting, the key and the schedules.
"""
