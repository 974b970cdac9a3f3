"""What Python calls: ``jit``, a program for each combination of types and shapes, and ``vectorize`` on it.

What is told of arguments, when a function is traced again, sizes that are named, calls within transformations. Imports
programs and the runtime, and nothing of the compiler imports it.
"""

from pullback.compiler.jit.compiled import Compiled, jit

__all__ = ["Compiled", "jit"]
