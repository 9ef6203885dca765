"""The nemesis: the server's own code under faults that a seed chooses, with all invariants watched.

Theory of operation
===================

A seed gives BOTs and buffers (`shape.py`), a schedule (which process does something next, and how
much time passes) and a list of faults (`faults.py`).  They come from streams of their own, so that
a fault that is left out changes nothing in the schedule.  `story.py` lives through them: web
processes, feeders and cycles (`processes.py`) run the server's code over one database in memory
(`store.py`) and a scheduling buffer for each machine (`buffer.py`), clients (`clients.py`) send
requests that may be lost or come twice.  Then nothing fails any more, and all BOTs must end.

A process crosses a point before each statement, before and after each commit, at each use of the
buffer, and before each reply (`points.py`).  There it may die, its statement may fail, or another
process may go first.  Nobody goes between inside of a transaction: PostgreSQL's locks are not
imitated.

After each step `invariants.py` looks at the tables, as `storage/sql/invariants.sql` does, and
`witness.py` compares what somebody was told with what is there.  `shrink.py` finds a short list
of faults with which a seed still fails.

With `mirror.py` PostgreSQL does what the database in memory does: each statement must give the same
rows in both.
"""
