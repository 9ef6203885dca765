"""Tells people at addresses of theirs when a BOT has ended or is held, or the server is degraded.

Theory of operation.  A trigger of the database notes that a BOT ends or is held, in the transaction
in which that happens, for each address of its owner (`notice_address`).  A cycle sends what is due
(`delivery.py`) and forgets what has arrived: each notice arrives at least once, with a number by
which the receiver knows it again.  What does not arrive is tried again for a day, less and less
often.  Another cycle asks how the server does, for addresses of operators.

An address is what a user wrote: it leads into no private network (`address.py`), and a mailbox is
told nothing until a code that was mailed there has been shown.  A hundred notices wait for an
address at most; older ones give way.
"""
