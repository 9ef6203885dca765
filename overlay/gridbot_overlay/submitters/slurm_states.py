"""What Slurm's words say of a job, by its command line and by its REST interface alike.  Pure."""

from __future__ import annotations

import re

from gridbot_overlay.decide.model import PilotState

AWAY = re.compile(
    "Unable to contact slurm|Socket timed out|temporarily unable|Connection (refused|timed out)"
    "|Zero Bytes were transmitted|Transport endpoint|Resource temporarily unavailable"
    "|[Bb]ackup controller|in standby mode"
)
# What scancel says of jobs that have gone.
GONE = re.compile("Invalid job id|already completing or completed|already completed")

# https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
STATES = {
    "PENDING": PilotState.QUEUED,
    "REQUEUED": PilotState.QUEUED,
    "REQUEUE_FED": PilotState.QUEUED,
    "CONFIGURING": PilotState.QUEUED,  # its nodes are being started
    "POWER_UP_NODE": PilotState.QUEUED,
    "REQUEUE_HOLD": PilotState.HELD,
    "SPECIAL_EXIT": PilotState.HELD,
    "RESV_DEL_HOLD": PilotState.HELD,
    "RUNNING": PilotState.RUNNING,
    "COMPLETING": PilotState.RUNNING,  # it still occupies its node
    "STAGE_OUT": PilotState.RUNNING,
    "RESIZING": PilotState.RUNNING,
    "SIGNALING": PilotState.RUNNING,
    "SUSPENDED": PilotState.RUNNING,
    "STOPPED": PilotState.RUNNING,
    "BOOT_FAIL": PilotState.ENDED,
    "CANCELLED": PilotState.ENDED,
    "COMPLETED": PilotState.ENDED,
    "DEADLINE": PilotState.ENDED,
    "FAILED": PilotState.ENDED,
    "NODE_FAIL": PilotState.ENDED,
    "OUT_OF_MEMORY": PilotState.ENDED,
    "PREEMPTED": PilotState.ENDED,
    "REVOKED": PilotState.ENDED,
    "TIMEOUT": PilotState.ENDED,
}
# Why a waiting job will not start before somebody changes it, its account or the cluster.  Limits
# on running jobs are not among these: our own pilots' end lifts them.
# https://slurm.schedmd.com/job_reason_codes.html
_NEVER_STARTS = re.compile(
    "JobHeld(User|Admin)|BadConstraints|DependencyNeverSatisfied|PartitionTimeLimit"
    "|PartitionNodeLimit|PartitionInactive|ReservationDeleted|AccountNotAllowed|QOSNotAllowed"
    "|Invalid(Account|QOS)|QOSUsageThreshold|JobLaunchFailure|SystemFailure"
    "|(Assoc|QOS)Grp\\w*(?<!Run)MinutesLimit"  # a budget that is used up
    "|(Assoc|QOS)\\w*(PerJob|PerNode|WallDuration|TimeLimit|NotSatisfied)\\w*"
    "|launch[ _]failed[ _]requeued[ _]held|job[ _]requeued[ _]in[ _]held[ _]state"
)
# The exit code of a job that somebody ended says nothing of it.
ENDED_ITSELF = ("COMPLETED", "FAILED")


def state_of(word: str, reason: str) -> PilotState:
    """Tell where a job is, by its state and the reason why it waits."""
    # A word that Slurm did not have when this was written must not make a pilot disappear.
    state = STATES.get(word, PilotState.RUNNING)
    return PilotState.HELD if state is PilotState.QUEUED and _NEVER_STARTS.search(reason) else state


def words_of(word: str, reason: str) -> str:
    """Say why a job waits or how it ended; nothing of one that runs or ended well."""
    said = "" if reason in ("None", "(null)") else reason
    if word == "PENDING":
        return said
    if word == "RUNNING" or (word == "COMPLETED" and not said):
        return ""
    return f"{word}: {said}" if said else word
