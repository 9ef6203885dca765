"""Policies under a virtual clock: the server's own decisions, simulated hosts, no database.

Theory of operation
===================

Feeder, scheduling, transitioner and cycles run as they are.  They say `conn.execute(SQL[name])`;
`store/` answers the named statements from tables in memory, `buffer.py` is the scheduling buffer.
`world/` has what is simulated: machines that come, go, err and differ in speed, the clients on
them, which decide with the client's own functions, and the loop of events with its clock.
Chance is an argument everywhere: the same seed gives the same decisions.
"""
