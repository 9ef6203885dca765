"""How much of a run may go on at once, and choices of its order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Throttles:
    """How much may go on at once, and other choices; 0 is no limit.

    `job_failures` of a node are borne, and `remove_others` says whether its other jobs are removed
    when there are more, unless TOLERANCE says otherwise.
    """

    max_jobs: int = 0
    max_idle: int = 1000
    max_pre: int = 20
    max_post: int = 20
    max_hold: int = 20
    submit_attempts: int = 6
    always_run_post: bool = False
    retry_node_first: bool = False
    depth_first: bool = False
    priority: int = 0
    job_failures: int = 0
    remove_others: bool = True

    def most_scripts(self, kind: str) -> int:
        """How many scripts of a kind may run at once."""
        return {"PRE": self.max_pre, "POST": self.max_post, "HOLD": self.max_hold}[kind]
