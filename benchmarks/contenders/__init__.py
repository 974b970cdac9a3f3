"""The same training step in each library: one file a library, one class ``Contender`` in each.

A contender is built from a ``Job`` and the data's images and labels; ``run(rows)`` trains one step on each
row of batch indices and returns the losses, ``weights()`` what it has learned. Importing the file imports
its library.

The same for functions of arrays, in ``calls_*.py``: a contender is built from a ``Call`` and its arrays, ``run()``
calls the function and ``numbers()`` gives what it returned.
"""

LIBRARIES = {
    "pullback": ("",),
    "torch": ("", "compiled"),
    "jax": ("", "step"),
    "tensorflow": ("",),
}
"""Each library with the variants in which it takes part."""

NUMERICAL = {"autograd": ("",)}
"""The same of libraries that train no networks: they take part where a benchmark asks for them."""
