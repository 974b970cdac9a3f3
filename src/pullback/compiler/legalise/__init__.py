"""Graph → graph of what kernels can be made of.

Complex numbers and floats of 16 bits are taken apart, linear algebra is written out or handed to LAPACK, named sizes
become capacities with padding. Imports the cost model and the floors below the compiler.
"""
