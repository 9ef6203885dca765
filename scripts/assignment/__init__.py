"""The parts of `scripts/nug`: the quadratic assignment problem by branch and bound, on many hosts.

`data` holds instances of QAPLIB: distances of a grid, and the flows of Nugent, Vollmann and Ruml,
"An experimental comparison of techniques for the assignment of facilities to locations",
Operations Research 16 (1968).
"""
