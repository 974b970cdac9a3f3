"""Graph → better graph → kernels → regions → LLVM IR → machine code → a call from Python.

Each package is a floor, and says what it holds and what it imports; ``docs/architecture.md`` shows them one above the
other. Between code generation and programs three modules tie the floors together: ``plan`` leads from a graph to
regions with their memory, ``build`` to LLVM IR, and ``stages`` runs what each stage on this way has made.
"""
