"""Sparse Jacobians and Hessians: where derivatives may be, found in the graph, and all of them from a few products.

>>> import numpy as np
>>> slopes = sparse_jacobian(lambda x: x[1:] ** 2 - x[:-1])
>>> slopes(np.array([1.0, 2.0, 3.0])).toarray()
array([[-1.,  4.,  0.],
       [ 0., -1.,  6.]])
"""

from pullback.sparse.derivatives import SparseDerivative, sparse_hessian, sparse_jacobian

__all__ = ["SparseDerivative", "sparse_hessian", "sparse_jacobian"]
