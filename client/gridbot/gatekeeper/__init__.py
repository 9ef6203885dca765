"""ARC's REST interface over BOTs, so that stock clients of ARC submit here.

`rest.py` answers requests, and `serving.py` lets clients in, by their certificates; `rounds.py`
brings each job that was accepted to its end, as a BOT of one job; `jobs.py` keeps what must not be
lost.
After A-REX's interface 1.0: https://www.nordugrid.org/arc/arc6/tech/rest/rest.html; tested with the
clients of ARC 6.17.
"""
