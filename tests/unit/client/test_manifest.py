import json
from typing import Any

import pytest

from gridbot_client.protocol.manifest import LATER, FileRef, JobInput, Manifest, admits
from gridbot_client.protocol.messages import ProtocolError

PLAIN = Manifest("alice", ("echo", "{x}"), {"x": "text"})


def test_a_bot_that_asks_for_nothing_new_is_described_as_before() -> None:
    raw = json.loads(PLAIN.text())
    assert raw["version"] == 2
    assert not LATER.keys() & raw.keys()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exit_codes", (0, 3)),
        ("exit_codes", (3,)),
        ("exit_codes", "any"),
        ("environment", {"X": "{x}"}),
        ("stdin", "{x}.txt"),
    ],
)
def test_what_older_clients_do_not_know_makes_another_version(field: str, value: Any) -> None:
    manifest = Manifest("alice", ("echo", "{x}"), {"x": "text"}, **{field: value})
    read = Manifest.from_text(manifest.text())
    assert read.version == LATER[field].version == 3
    assert getattr(read, field) == value
    assert read.text() == manifest.text()
    lowered = json.dumps({**json.loads(manifest.text()), "version": 2})
    with pytest.raises(ProtocolError, match=f"{field}: only manifests of version 3 have it"):
        Manifest.from_text(lowered)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exit_codes": []}, "exit_codes: expected any or a list, got list"),
        ({"exit_codes": "all"}, "exit_codes: expected any or a list, got str 'all'"),
        ({"exit_codes": [256]}, "exit_codes: expected numbers from 0 to 255, got int '256'"),
        ({"exit_codes": [-9]}, "exit_codes: expected numbers from 0 to 255"),
        ({"exit_codes": [True]}, "exit_codes: expected numbers from 0 to 255"),
        ({"environment": {"1X": ""}}, "environment: '1X' is no name of a variable"),
        ({"environment": {"A=B": ""}}, "is no name of a variable"),
        ({"environment": {"GRIDBOT_SLOT": "/elsewhere"}}, "one of the client's own, GRIDBOT_"),
        ({"environment": {"X": 1}}, "environment.X: expected a string"),
        ({"environment": {"X": "\0"}}, "environment.X: NUL"),
        ({"environment": {f"V{n}": "" for n in range(201)}}, "201 variables, at most 200"),
        ({"stdin": 3}, "stdin: expected a string"),
    ],
)
def test_a_field_that_is_wrong_is_named(changes: dict[str, Any], why: str) -> None:
    text = json.dumps({**json.loads(PLAIN.text()), "version": 3, **changes})
    with pytest.raises(ProtocolError, match=why):
        Manifest.from_text(text)


@pytest.mark.parametrize(
    ("codes", "answers"), [((0,), {0}), ((0, 3), {0, 3}), ((3,), {3}), ("any", {*range(256)})]
)
def test_an_exit_code_is_an_answer_if_the_bot_says_so_and_a_signal_never(
    codes: Any, answers: set[int]
) -> None:
    manifest = Manifest("alice", ("true",), exit_codes=codes)
    assert {code for code in range(-65, 300) if manifest.is_answer(code)} == answers


def with_files(*names: str, **fields: Any) -> dict[str, Any]:
    files = [{"name": name, "sha256": "a" * 64, "size": 1} for name in names]
    return {**json.loads(PLAIN.text()), "version": 4, "inputs": files, **fields}


HELD = {"bytes": 10, "entries": 2}


def test_a_directory_makes_version_4_and_so_does_a_dot_below_one() -> None:
    read = Manifest.from_text(json.dumps(with_files("deps", "x.py", archives={"deps": HELD})))
    assert read.version == Manifest.from_text(read.text()).version == 4
    assert [ref.name for ref in read.files] == ["x.py"]
    dotted = Manifest.from_text(json.dumps(with_files("conf/.hidden", version=2)))
    assert json.loads(dotted.text())["version"] == 4
    pattern = json.dumps({**with_files(version=2), "job_inputs": [{"name": "conf/.x*"}]})
    assert json.loads(Manifest.from_text(pattern).text())["version"] == 4


@pytest.mark.parametrize(
    ("names", "fields", "why"),
    [
        (["x"], {"archives": {"deps": HELD}}, "'deps' is not the name of an input"),
        (["d", "d/x"], {"archives": {"d": HELD}}, "d/x would lie in the directory d"),
        (["a/d", "a"], {"archives": {"a/d": HELD}}, "a would lie in the directory a/d, or above"),
        (["d"], {"archives": {"d": HELD}, "stdin": "d"}, "stdin: d is a directory"),
        (["d"], {"archives": {"d": {"bytes": -1}}}, "bytes: -1 is not in"),
        (["d"], {"archives": {"d": {"bytes": 1, "entries": 1 << 40}}}, "entries: .* is not in"),
        (["d"], {"archives": ["d"]}, "archives: expected an object"),
        ([".d"], {}, "'.d' is not a usable file name"),
        (["d/.."], {}, "is not a usable file name"),
        (["d/./x"], {}, "is not a usable file name"),
    ],
)
def test_a_directory_that_cannot_be_shown_is_named(
    names: list[str], fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(ProtocolError, match=why):
        Manifest.from_text(json.dumps(with_files(*names, **fields)))


def test_a_star_admits_no_hidden_file_of_a_job() -> None:
    hidden, plain = FileRef("d/.x", "a" * 64, 1), FileRef("d/x", "a" * 64, 1)
    assert [admits([JobInput("d/*")], ref) for ref in (hidden, plain)] == [False, True]
    assert admits([JobInput("d/.*")], hidden)
