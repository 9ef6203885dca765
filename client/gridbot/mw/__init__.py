"""Master-Worker: a list of tasks that grows by what its tasks return, such as a search tree.

Theory of operation.  The interface is that of MW (Goux, Kulkarni, Linderoth, Yoder, "An enabling
framework for master-worker applications on the computational grid", HPDC 2000): a master adds the
first tasks, and says of each completed one what follows.

    begin ──► work list ──best keys──► jobs of one growing BOT ──results──► completed
                  ▲                                                             │
                  └──────────────────────── add, delete_worse_than ─────────────┘

* A task is a JSON value; a host calls one function with it, and returns another JSON value.  So
  nothing that a stranger's machine returns is unpickled, and anybody's hosts may work.
* `width` jobs are kept at the server.  The others wait in the list, the least key first, so that
  what is sent is always the best that is known, and carries the latest incumbent (`pack`).
* No message reaches a job that runs.  A task is to end after a time slice and return what it left
  open; the master lists that anew.
* The state is one SQLite file.  What `completed` does with an answer is one transaction, together
  with the place in the stream of results.  A job is written down before it is appended, and
  appended by its number, so that to repeat it changes nothing.  A master that was killed at any
  line therefore goes on: each answer counts once, and no task is lost or made twice.
"""

from gridbot.mw.master import Master, Statistics

__all__ = ["Master", "Statistics"]
