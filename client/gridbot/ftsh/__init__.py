"""The fault tolerant shell: a small language in which failures, time limits and retries are basic.

Scripts of ftsh (Thain and Livny, "The Ethernet Approach to Grid Computing", HPDC 2003; manual of
2004) run here with the semantics of `gridbot.reliable`.  `reader.py` reads a script to a tree,
`run/` carries it out.
"""
