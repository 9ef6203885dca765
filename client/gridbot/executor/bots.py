"""The BOT whose jobs are calls: its submission, its policy, and what its jobs gave."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

from gridbot.api.bot import Bot
from gridbot.api.connection import patiently
from gridbot.api.errors import BadInput, PolicyError
from gridbot.api.results import Result
from gridbot.api.session import Session
from gridbot.executor.calls import Form, JobFailed, Outcome, outcomes
from gridbot_policies.classad import ParseError, parse

JOB_FILES = ("{function}=function.pickle", "{data}=calls.pickle")  # of each job
_FILES = ("worker.py", "run.sh")  # of all jobs
_COMMAND = ("sh", "run.sh", "worker.py")


def submit_bot(
    session: Session, folder: Path, form: Form, inputs: Sequence[str], options: Mapping[str, Any]
) -> Bot:
    """Submit a growing BOT whose jobs are what `Pickling.job` makes in `folder`.

    `inputs` are further files of each job; `options` are fields of `Submission`.
    """
    (folder / "none").touch()
    fields = fields_of_calls(folder, form, [*JOB_FILES, *inputs])
    return session.submit(**fields, resident=len(_COMMAND), **options)


def fields_of_calls(folder: Path, form: str, inputs: Iterable[str]) -> dict[str, Any]:
    """Fields of the submission of a growing BOT whose jobs are calls, made in `folder`.

    `form` is what `worker.py` takes for it.
    """
    for name in _FILES:
        copyfile(Path(__file__).parent / name, folder / name)
    version = "{}.{}".format(*sys.version_info)
    return {
        "command": [*_COMMAND, version, form, "{calls}"],
        "base": folder,
        "inputs": [*_FILES, "cloudpickle.zip", *inputs],
        "outputs": ["returned"],
        "growing": True,
    }


def outcomes_of(bot: Bot, result: Result, form: Form, count: int) -> list[Outcome]:
    """What the calls of a job gave.  Raises JobFailed, or BadInput for what cannot be read."""
    if result.state != "done":
        ends = [line["stderr"] for line in bot.logs(result.seq, failed=True)]
        said = next(filter(None, ends), f"see gridbot bot logs {bot.id}")
        detail = f"job {result.seq} of BOT {bot.id} failed: {result.reason}: {said}"
        raise JobFailed(result.reason, detail.strip())
    content = patiently(result.outputs["returned"].read)
    return outcomes(content, form, count)


def policy_of(form: Form, trusts: Iterable[str], requirements: str) -> str:
    """Policy of an executor's BOT: the version of Python, and who may return pickles."""
    conditions = ['Host.PythonVersion =?= "{}.{}"'.format(*sys.version_info)]
    if form == "pickle":
        owners = [f"Host.Owner =?= {_quoted(name)}" for name in trusts]
        own = ["Host.Owner =?= BOT.Owner", "Host.IsPilot =?= true", *owners]
        conditions.append(f"({' || '.join(own)})")
    if requirements:
        try:
            parse(requirements)  # alone it is a whole expression
        except ParseError as error:
            raise PolicyError(f"requirements: {error}", error.pretty()) from None
        conditions.append(f"({requirements})")
    return f"JobRequirements = {' && '.join(conditions)};"


def _quoted(text: str) -> str:
    if '"' in text or "\\" in text:
        raise BadInput(f"{text!r} is no name of an owner")
    return f'"{text}"'
