"""Kernels → a program in steps: regions of chunks that run side by side, loops, choices and calls around them, memory.

``steps`` and ``planned`` say what such a program is, ``turns`` runs it in NumPy. Imports lowering, the kernels'
rewriting, the schedules, what repeated rows are worth to a pass, and of the runtime the layout that code agrees with.
"""
