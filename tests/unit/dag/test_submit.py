"""Submit descriptions, by themselves and beside HTCondor's own reader."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot.dag.run.requirements import policy_of
from gridbot.dag.submit.description import SubmitSetting, read_jobs
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import SubmitJob, refuse_impossible
from gridbot.dag.submit.macros import Macros
from gridbot.dag.submit.queue import read_queue

needs_htcondor = pytest.mark.skipif(
    importlib.util.find_spec("htcondor2") is None, reason="HTCondor's library is not here"
)


def jobs(text: str, folder: Path, **setting: object) -> list[SubmitJob]:
    made = SubmitSetting(folder, {"HOME": "/home/x"}, **setting)  # type: ignore[arg-type]
    return read_jobs(f"executable = /bin/sh\n{text}", made)


@pytest.mark.parametrize(
    ("line", "memory", "disk"),
    [
        ("request_memory = 2 GB", 2048, None),
        ("request_memory = 1.5G", 1536, None),
        ("request_memory = 1", 1, None),
        ("request_disk = 1MB", None, 1024),
        ("request_disk = 3", None, 3),
        ("request_memory = 2 * 3", 6, None),
        ("request_memory = 1 KB", 1, None),
    ],
)
def test_sizes_have_units_and_are_rounded_up(
    tmp_path: Path, line: str, memory: int | None, disk: int | None
) -> None:
    (job,) = jobs(f"{line}\nqueue", tmp_path)
    assert (job.memory_mb, job.disk_kib) == (memory, disk)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("universe = tropical\nqueue", "tropical"),
        ("request_memory = much\nqueue", "much"),
        ("queue many", "many"),
        ("queue x from nowhere.txt", "nowhere.txt"),
        ('arguments = "open\nqueue', "double quote"),
        ("if 1 == 1\nendif\nqueue", "if"),
        ("if true\nqueue", "endif"),
        ("include : nowhere\nqueue", "nowhere"),
        ("what is this\nqueue", "neither"),
        ("a = $(b)\nb = $(a)\narguments = $(a)\nqueue", "deep"),
        ("initialdir = nowhere\nqueue", "nowhere"),
        ("arguments = $RANDOM_INTEGER(5,1)\nqueue", "5,1"),
        ("arguments = $RANDOM_INTEGER(1,5,0)\nqueue", "1,5,0"),
        ("arguments = $RANDOM_INTEGER(1)\nqueue", "RANDOM_INTEGER"),
        ("arguments = $SUBSTR(a)\nqueue", "SUBSTR"),
        ("arguments = $INT(1,%99999999999d)\nqueue", "too wide"),
        ("arguments = $STRING(a,%d)\nqueue", "format"),
        ("arguments = $INT(1e999)\nqueue", "1e999"),
        ("request_memory = 1e999\nqueue", "1e999"),
        ("request_cpus = 1e999\nqueue", "1e999"),
        ("queue 1e999", "1e999"),
        ("queue x in [::0] (a b)", "step"),
    ],
)
def test_what_cannot_be_read_is_refused_and_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SubmitError, match=said):
        jobs(text, tmp_path)


def test_what_has_no_effect_is_said_and_what_cannot_run_refused(tmp_path: Path) -> None:
    (job,) = jobs("notification = Always\nperiodic_hold = x > 1\nqueue", tmp_path)
    assert [text.split()[0] for text in job.warnings] == ["notification", "periodic_hold"]
    (java,) = jobs("universe = java\nqueue", tmp_path)
    with pytest.raises(SubmitError, match="java"):
        refuse_impossible(java)


def test_variables_of_a_node_stand_before_the_text_or_win_over_it(tmp_path: Path) -> None:
    text = "if defined early\n a = $(early)\nendif\nlate = file\narguments = $(a) $(late)\nqueue"
    (job,) = jobs(text, tmp_path, before={"early": "1"}, after={"late": "dag"})
    assert job.arguments == ("1", "dag")


def test_getenv_takes_what_it_names(tmp_path: Path) -> None:
    (job,) = jobs("getenv = HO*\nenvironment = A=1\nqueue", tmp_path)
    assert job.environment == {"HOME": "/home/x", "A": "1"}


def test_requirements_speak_of_the_host_unless_the_job_has_the_name() -> None:
    text = '(OpSys == "LINUX") && TARGET.Memory >= Wanted && MY.Flag && regexp("x", Name)'
    assert policy_of(text, "Memory", {"Wanted": 5, "Flag": True}) == (
        'JobRequirements = (Host.OpSys == "LINUX") && Host.Memory >= 5 && true &&'
        ' regexp("x", Host.Name); Rank = Host.Memory;'
    )


WORDS = st.text("ab,. \t\"'#", max_size=12)


@needs_htcondor
@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 3))
def test_items_are_those_of_htcondor(lines: list[str], count: int) -> None:
    import htcondor2

    lines = [line for line in lines if line.strip() and line.strip()[0] not in "#)"]
    if not lines:
        return
    names = ",".join("xyz"[:count])
    listed = "\n".join(lines)
    text = f"{names} from (\n{listed}\n)"
    theirs = htcondor2.Submit(f"executable = /bin/sh\nqueue {text}\n").itemdata()
    ours = [dict(row) for _, _, row in read_queue(text, Macros({}), Path(), {}).rows()]
    assert ours == [dict(row) for row in theirs or ()]


NAMES = st.sampled_from(["a", "b", "c", "none"])
PIECES = st.one_of(
    st.sampled_from(["x", " ", "7", "$(DOLLAR)-", "$$(Arch)", "$ENV(HOME)", "$ENV(NO:d)"]),
    NAMES.map(lambda name: f"$({name})"),
    st.builds("$({}:{})".format, NAMES, st.sampled_from(["", "d", "$(a)"])),
    NAMES.map(lambda name: f"$INT(n{name[:0]})"),
    st.sampled_from(["$SUBSTR(a,1)", "$CHOICE(1,p,q)", "$Fnx(f)", "$Fp(f)", "$REAL(n,%.2f)"]),
)


@needs_htcondor
@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=5).map("".join), st.text("ab1 ", max_size=4))
def test_macros_are_expanded_as_htcondor_does(text: str, value: str) -> None:
    import os

    import htcondor2

    head = f"a = v{value}w\nb = $(a)$(a)\nc = $(c)1\nn = 3\nf = /d.e/g.h.i\n"
    submit = htcondor2.Submit(f"{head}k = [{text}]\nexecutable = /bin/sh\nqueue\n")
    macros = Macros(dict(os.environ))
    for line in (*head.splitlines(), f"k = [{text}]"):
        name, _, given_value = line.partition("=")
        macros.set(name.strip(), given_value.strip())
    assert macros.get("k") == submit.expand("k")
