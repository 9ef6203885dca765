"""What a DAG does next: an event in, actions out.  No clock, no files, no network.

The same events give the same state, so that replaying a journal restores a run.
"""
