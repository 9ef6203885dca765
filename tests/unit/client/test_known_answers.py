"""Known answers, as the submitter's machine reads them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from gridbot.api.errors import BadInput
from gridbot.api.submission import Submission, prepare


def sent(tmp_path: Path, known: Any, **fields: Any) -> list[Any]:
    fields = {"items": range(5), **fields}
    found = prepare(
        Submission(command="p {}", base=tmp_path, known_answers=known, **fields)
    ).body.get("known_answers", [])
    return [(item["job"], {out["name"]: content(out) for out in item["outputs"]}) for item in found]


def content(output: dict[str, Any]) -> bytes | str:
    return base64.b64decode(output["content"]) if "content" in output else output["sha256"]


def test_known_answers_may_be_python_values(tmp_path: Path) -> None:
    (tmp_path / "fit.dat").write_text("fit")
    known = {3: "9\n", 1: {"stdout": b"1", "fit.dat": Path("fit.dat")}}
    assert sent(tmp_path, known) == [
        (1, {"stdout": b"1", "fit.dat": b"fit"}),
        (3, {"stdout": b"9\n"}),
    ]
    assert sent(tmp_path, None) == []


def test_files_of_known_answers_lie_beside_their_table(tmp_path: Path) -> None:
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "3.dat").write_text("three")
    (tmp_path / "known" / "all.jsonl").write_text(
        '{"job": 3, "outputs": {"stdout": {"file": "3.dat"}, "big": {"sha256": "ab"}}}\n\n'
    )
    assert sent(tmp_path, Path("known/all.jsonl")) == [(3, {"stdout": b"three", "big": "ab"})]


def test_jobs_are_found_by_their_arguments(tmp_path: Path) -> None:
    (tmp_path / "k").write_text('{"args": {"i": "x"}, "outputs": {"stdout": "1"}}')
    assert [job for job, _ in sent(tmp_path, "k", items=["y", "x", "z", "x"])] == [1, 3]
    (tmp_path / "k").write_text('{"args": {"i": 0.10}, "outputs": {"stdout": "1"}}')
    assert [job for job, _ in sent(tmp_path, "k", items=[0.5, 0.1])] == [1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "k, line 1: Expecting property name"),
        ('{"job": 1}', 'k, line 1: write {"job": 17, "outputs"'),
        ('{"outputs": {}}', "say which job, by job or by args"),
        ('{"job": 1, "args": {}, "outputs": {}}', "say which job, by job or by args"),
        ('{"job": 5, "outputs": {}}', "there is no job 5; the 5 jobs count from 0"),
        ('{"job": true, "outputs": {}}', "there is no job True"),
        ('{"args": {"i": 9}, "outputs": {}}', 'no job has the arguments {"i": 9}'),
        ('{"job": 1, "x": 2, "outputs": {}}', "unknown key 'x'"),
        ('{"job": 1, "outputs": {"stdout": 7}}', "output stdout: write its text"),
        ('{"job": 1, "outputs": {"a": {"file": "none"}}}', "none: No such file"),
        (
            '{"job": 1, "outputs": {}}\n{"args": {"i": 1}, "outputs": {}}',
            "line 2: job 1 has a known answer already",
        ),
    ],
)
def test_what_is_wrong_with_a_known_answer_is_said_with_its_place(
    tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "k").write_text(line)
    with pytest.raises(BadInput) as error:
        sent(tmp_path, "k")
    assert message in str(error.value)
