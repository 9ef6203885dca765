"""ARC CE: pilots through a real A-REX 6, by its REST interface."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.arc_ce import ArcCE, arc_ce
from tests.system.batch_systems import open_folder
from tests.system.deployment import Deployment, eventually
from tests.system.overlays import overlay

from gridbot_overlay.decide.model import Grid, PilotState, Sighting
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.arc import Arc


@pytest.fixture(scope="module")
def ce() -> Iterator[ArcCE]:
    with open_folder("arc") as folder, arc_ce(folder) as made:
        yield made


def submitter(ce: ArcCE, folder: Path) -> Arc:
    return Arc(Grid(name="arc", kind="arc", options=ce.options), folder)


def wait_ended(arc: Arc, tag: str) -> list[Sighting]:
    """Wait until all pilots of a submission have ended; in the order of their index."""

    def pilots() -> list[Sighting]:
        return sorted(arc.pilots(tag), key=lambda pilot: pilot.index)

    def is_over() -> bool:
        return all(pilot.state is PilotState.ENDED for pilot in pilots())

    eventually(is_over, 90.0, what="the end of the pilots")
    return pilots()


def test_a_bot_runs_on_pilots_behind_an_a_rex(running: Deployment, ce: ArcCE) -> None:
    scratch = ce.folder / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)  # jobs run as nobody there
    options = [word for pair in ce.options.items() for word in ("--option", "=".join(pair))]
    own = ("--python", "/usr/bin/python3", "--scratch", str(scratch))
    with overlay(running, "arc") as pilots:
        pilots.add("arc", "ce", *own, "--setup", "unset GRIDBOT_ALLOW_WRITE", *options)
        bot = running.submit("--range", "0:3", "--", "id", "-un")
        pilots.start()
        running.wait(bot)
        with running.session() as session:
            assert [result.stdout for result in session.bot(bot).results()] == ["nobody\n"] * 3
        pilots.wait_left(90.0)
        assert {pilot.exit_code for pilot in pilots.pilots("ce")} == {0}


def test_pilots_end_with_their_code_and_last_words_or_by_a_cancel(
    ce: ArcCE, tmp_path: Path
) -> None:
    arc = submitter(ce, tmp_path)
    script = "echo words of $GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX >&2\n"
    script += "test $GRIDBOT_PILOT_INDEX = 1 || exit 5; sleep 600"
    ids = arc.submit(make_order("gbaaaaaan1", script, count=2))

    def states() -> dict[int, PilotState]:
        return {pilot.index: pilot.state for pilot in submitter(ce, tmp_path).pilots("gbaaaaaan1")}

    eventually(lambda: states()[1] is PilotState.RUNNING, 90.0, what="a running pilot")
    arc.cancel([ids[1], "nonesuch"])
    failed, cancelled = wait_ended(arc, "gbaaaaaan1")
    assert (failed.native_id, failed.exit_code) == (ids[0], 5)
    assert "exit code - 5" in failed.reason
    assert "cancel" in cancelled.reason
    assert arc.tail(ids[0], "") == "words of gbaaaaaan1 0\n"


def test_a_job_whose_id_was_lost_is_found_by_its_name_and_never_runs(
    ce: ArcCE, tmp_path: Path
) -> None:
    submitter(ce, tmp_path).submit(make_order("gbbbbbbbn1", "sleep 600"))
    # Somebody who knows nothing of what was submitted, as after a lost answer.
    arc = submitter(ce, tmp_path / "other")
    [found] = wait_ended(arc, "gbbbbbbbn1")
    assert (found.tag, found.index) == ("gbbbbbbbn1", 0)


def test_what_a_rex_refuses_is_lasting_and_comes_with_its_words(ce: ArcCE, tmp_path: Path) -> None:
    arc = submitter(ce, tmp_path)
    with pytest.raises(GridError, match="queue nonesuch is not allowed") as refused:
        arc.submit(make_order("gbccccccn1", "exit 0", '(queue="nonesuch")'))
    assert refused.value.is_lasting
    assert all(result.is_good for result in arc.check())


def test_a_server_that_no_known_authority_has_signed_gets_nothing(
    ce: ArcCE, tmp_path: Path
) -> None:
    options = {**ce.options, "ca": "/etc/ssl/certs"}
    arc = Arc(Grid(name="arc", kind="arc", options=options), tmp_path)
    with pytest.raises(GridError, match="certificate"):
        arc.pilots("gb")
