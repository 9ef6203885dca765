"""Workflows in Python: steps whose jobs read what other steps' jobs wrote.

Theory of operation.  A step is a node of `gridbot.dag.engine`, and its jobs are jobs of a growing
BOT; steps that differ in values and inputs only share one.  The loop of `run` journals what happens
before it counts, as `gridbot dag run` does, so a script that was killed goes on where it was when
it is started again.

    Flow ──declares──► steps ──feeding──► jobs ──appended──► BOTs ──results──► engine, feeding

* `steps` is what the user declares.  What one step takes from another is a selection of its
  outputs, by name.
* `feeding` is pure: which jobs a step has, by what the jobs before returned.  A step over the
  outputs of another has one job for each, as soon as that is there; one that takes outputs as
  inputs begins when they all are.
* `sending` makes the jobs that are due, and knows which job of which BOT each is.  The journal has
  a hash of what they are, so that another process knows whether it has the same.
* `results` makes what the user gets of what the journal has.
* Outputs stay at the server, but for small ones.  Jobs name them by their hashes, so hosts fetch
  them from there.
* A function that is called with each result of a step may declare further steps.  Their names come
  from that result, and the journal has them in the line of that result.
"""
