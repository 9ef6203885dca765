from gridbot_client.activity import ActivityLog


def test_what_a_server_says_moves_no_cursor() -> None:
    lines: list[str] = []
    log = ActivityLog(lines.append, lambda: 0.0)
    log.refused(7, "a BOT of \x1b]0;owned\x07 does not run here\n")
    assert lines == ["refused to run BOT 7: a BOT of \\x1b]0;owned\\x07 does not run here"]


def test_why_there_is_no_work_is_said_when_it_changes() -> None:
    lines: list[str] = []
    log = ActivityLog(lines.append, lambda: 0.0)
    for why in (
        "none of 3 BOTs suits this host now: needs 8 CPUs (3)",
        "none of 2 BOTs suits this host now: needs 8 CPUs (2)",
        "no unsent jobs", "", "no unsent jobs",
    ):  # fmt: skip
        log.no_work(why)
    assert lines == [
        "no work now: none of 3 BOTs suits this host now: needs 8 CPUs (3)",
        "no work now: no unsent jobs",
        "no work now: no unsent jobs",
    ]
