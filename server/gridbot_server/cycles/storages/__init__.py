"""Storages of owners: buckets of theirs to which outputs of their BOTs go, past this server.

Theory of operation
===================

    PREFIX/TAG/incoming/KEY          what a client has sent; the key is random
    PREFIX/TAG/BOT/SEQ/NAME          an output of a canonical replica

A client asks where an output goes and gets a URL for one object, of this length and this SHA-256.
No host has a key.  The row of `incoming` is there before the URL is.  When a job has its outcome,
the publication copies what its canonical replica sent to the final name, within the storage.  The
sweep deletes what else was sent, once its URLs have expired.

TAG is random, and another one for each storage.  So two storages at one place, or one inside of the
other, share no object, and the sweep deletes only names that this server has given.

Each storage has turns of its own, in threads that are few in all and fewer for one owner.  All that
a turn asks is bounded in time.  A storage that fails waits longer from turn to turn.

| moment of a crash | then |
|---|---|
| before the URL is answered | a row without an object; the sweep deletes it |
| after the copy, before the commit | the next turn copies once more, which changes nothing |
| after a deletion, before its commit | the next turn deletes once more |

An object is lost if both of its names were missing for `LOST_SECONDS`, while its bucket was there.
"""
