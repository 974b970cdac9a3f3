"""LLVM IR as text: modules and functions, and a small language with Python's syntax for what is written by hand.

Imports the target alone. Code generation writes kernels with it, the runtime what is the same for every program.
"""
