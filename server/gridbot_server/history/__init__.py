"""What happened over time: to each BOT by grid, and to the server; minutes, hours and days.

Theory of operation.  Whoever moves a replica or finishes a job notes that in the same transaction
(`storage/counters.py`): one row without an index, so that it costs next to nothing.  `sums.py` adds
the notes up, by minute, BOT and grid.  So the history is exact, two seconds later: a minute of it
is what a count of the replicas and outcomes of that minute gives.  It makes hours of minutes and
days of hours, once no transaction is left that could add to them, and removes what is kept no
longer: minutes after 7 days, hours after a year.  Reading (`curves.py`) takes the longest steps
that do, and shorter ones behind the last sum; its price depends on the number of steps shown
(`steps.py`), never on the number of jobs.
"""
