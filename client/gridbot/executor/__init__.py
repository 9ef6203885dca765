"""Runs calls of Python functions as jobs of a growing BOT: a `concurrent.futures.Executor`.

Theory of operation.  An executor has one growing BOT, submitted at the first call, and two threads.

    submit, map ──► waiting calls ──cut──► chunks ──append──► jobs ──results──► futures

* A call is pickled when it is submitted.  Its function is a file of the BOT's jobs: it is sent
  once, by its content, and each host fetches it once.  Arguments travel in the job itself, or in a
  file if they are large.
* One thread cuts what waits into chunks (`chunks.py`): calls of one function that take about a
  second together, by what the calls before took.  One chunk is one job.
* A job runs `worker.py`, which the BOT brings along with cloudpickle, under the interpreter of the
  host's client.  It returns what each call gave, or the exception that it raised.
* The other thread takes the results as they come, by long polls.  Of a job that failed with many
  calls each call is sent again alone, so that the one at fault is told apart.

What a job returned is unpickled here, which lets whoever made it run any program.  So these jobs
run only on hosts of the BOT's owner, on pilots, and on hosts of owners that are named.  With
`results="json"` nothing is unpickled, and anybody's host may run them.
"""
