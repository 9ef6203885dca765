"""The statements of feeder, dispatch, cycles and credit that have no function here, with why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_STRANGERS = "all simulated hosts are trusted by the BOT's owner"
_FILES = "simulated jobs have no files"
_GANGS = "simulated jobs run alone"
_PEOPLE = "nobody changes anything during a simulation"
_PROCESSES = "there is one process, on one connection, which does not die"
_FOR_PEOPLE = "written or read for people; no decision depends on it"
_PILOTS = "simulated pilots end without a word"
_CLOCK = "the virtual clock is never set"

NOT_COVERED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "dispatch.sql": {
            "add_unjudged": _STRANGERS,
            "begin_pause": "nothing is called back",
            "coins": _STRANGERS,
            "lock_crews": _STRANGERS,
            "records": _STRANGERS,
            "unjudged": _STRANGERS,
            "uploaded": _FILES,
            "note_caches": _FILES,
            "note_progress": _FOR_PEOPLE,
            "epoch": _PEOPLE,
            "planner": _PROCESSES,
        },
        "live_output.sql": dict.fromkeys(
            (
                "append", "append_shown", "follow", "followed", "forget", "forget_shown",
                "is_over", "running", "watch",
            ),
            _FOR_PEOPLE,
        ),
        "bans.sql": dict.fromkeys(
            (
                "ban", "clients_of_key", "lock_clients_of_host", "lock_clients_of_key",
                "revoke_clients_of_host", "revoke_clients_of_key", "unban",
            ),
            _PEOPLE,
        ),
        "moves.sql": {
            **dict.fromkeys(
                (
                    "bot_cancelled", "client_revoked", "copy_answers", "host_banned",
                    "host_forgotten", "manifest_replaced", "remove_ended", "requeue_failed",
                    "retire_ended", "returned", "sweep_copies",
                ),
                _PEOPLE,
            ),
            "client_left": _PILOTS,
            "pilot_ended": _PILOTS,
            "gang_broken": _GANGS,
            "gathering_ended": _GANGS,
            "withhold": _PEOPLE,
        },
        "feeder.sql": {
            "backend_lives": _PROCESSES,
            "claim_these": _GANGS,
            "database": _PROCESSES,
            "listen": _PROCESSES,
            "planner": _PROCESSES,
            "electors": _STRANGERS,
            "pause": _STRANGERS,
            "workers": _STRANGERS,
        },
        "cycles.sql": {
            "due": _PROCESSES,
            "extend_leases": _CLOCK,
            "lead": _PROCESSES,
            "part": _PROCESSES,
            "listen": _PROCESSES,
            "purge_keys": _PEOPLE,
            "purge_open": _PEOPLE,
            "purge_pilots": _PEOPLE,
            "sweep_unjudged": _PEOPLE,
            "set_aside": "an error ends a simulation",
            "try_again": "an error ends a simulation",
        },
        "credit.sql": {
            **dict.fromkeys(
                (
                    "add_team", "export_hosts", "export_secret", "export_teams", "export_totals",
                    "export_users", "find_team", "owner_name", "set_public", "set_team", "teams",
                    "volunteer",
                ),
                _FOR_PEOPLE,
            ),
            "grant_teams": "simulated owners are in no team",
        },
        "brake.sql": {"digest": _FOR_PEOPLE, "resume": _PEOPLE},
        "notable.sql": dict.fromkeys(
            (
                "end_sessions", "examples", "note_ended_pilots", "note_leave", "purge_examples",
                "purge_sessions", "purge_slowest", "sessions", "slowest",
            ),
            _FOR_PEOPLE,
        ),
    }
)  # fmt: skip

WHOLE_FILES: Mapping[str, str] = MappingProxyType(
    {
        "assurance.sql": _STRANGERS,
        "comparisons.sql": _FILES,
        "gangs.sql": _GANGS,
        "known_answers.sql": _STRANGERS,
        "notices.sql": _FOR_PEOPLE,
        "owner_storage.sql": _FILES,
        "passwords.sql": _PEOPLE,
        "retention.sql": _FOR_PEOPLE,
    }
)
"""Files of which no statement has a function."""
