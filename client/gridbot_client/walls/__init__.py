"""Walls around tasks: what a task may see, reach and use, by the kernel's own means.

`warden.py` explains how a task starts behind them.  `levels.py` finds out what this machine offers.
"""
