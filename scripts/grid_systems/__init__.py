"""Tries submitters on real batch systems, in throw-away trees of Debian 13.

`cli` and `tree` run on this machine; `inside` and what it imports run in the tree, by the tree's
own Python, and need the standard library alone.
"""
