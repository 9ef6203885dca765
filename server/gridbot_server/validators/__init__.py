"""Whether two answers agree: the rule of each validator, over digests or contents.

`spec.py` reads what a BOT asks for.  `compare.py` compares two answers' files.  `worker.py` is the
process in which that happens, because files of strangers may be huge or hostile.
"""
