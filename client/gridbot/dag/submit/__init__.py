"""Submit descriptions of HTCondor, read into jobs.

`description` follows the lines, `macros` expands, `queue` makes the items, `words` splits
arguments and environments, and `job` reads the keys of one job.
"""
