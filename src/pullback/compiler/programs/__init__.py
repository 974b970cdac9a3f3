"""A graph as a loaded program: from the code cache or built, within a budget of memory, timed, explained.

Imports ``build`` where a program is built, the key, what makes graphs fit for kernels, and the runtime.
"""
