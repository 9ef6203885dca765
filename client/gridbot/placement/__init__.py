"""Data placement as jobs, after Stork: a queue of copies that survives crashes and is tried again.

`queue.py` keeps what is to be copied, `serving.py` runs it, each attempt as a program of its own:
one of Stork's modules if there is one for the two protocols, else `module.py`, which copies
between all that fsspec reaches.  A copy that is queued is *committed*, one that is done *pushed*:
Kangaroo's two promises.
"""
