"""The key of a graph: the text under which its code is stored, and by which passes tell equal regions.

Imports the cost model and the floors below the compiler.
"""
