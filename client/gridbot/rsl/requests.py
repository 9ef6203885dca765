"""Turns a job request in RSL into a BOT.  Pure but for a look at which files are there.

A conjunction is a BOT of `count` jobs; a multi-request one whose jobs run together; alternatives
leave the choice of a grid to the overlay.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.rsl.syntax import (
    AND,
    MULTI,
    OR,
    Relation,
    Spec,
    Specs,
    Variables,
    plain_name,
    written,
)
from gridbot.rsl.values import MOST_JOBS, Found, literal, number, pairs, single, texts, values_of
from gridbot_client.protocol.fields import STREAMS

_NOTHING = "/dev/null"
# What only the submission to a gatekeeper is about.
_IGNORED = frozenset(
    map(
        plain_name,
        (
            "two_phase", "save_state", "expiration", "gass_cache", "proxy_timeout", "gram_my_job",
            "save_job_description", "loglevel", "logpattern", "stdout_position", "stderr_position",
            "label", "subjob_start_type", "subjob_comms_type", "username", "host_count",
        ),
    )
)  # fmt: skip
_WHERE = frozenset(map(plain_name, ("queue", "resource_manager_contact")))


@dataclass(frozen=True, slots=True)
class Request:
    """What a conjunction asks for."""

    executable: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    job_type: str = "multiple"
    minutes: int | None = None
    memory_mb: int | None = None
    stdin: str = ""
    inputs: tuple[str, ...] = ()  # PATH=NAME
    outputs: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()  # of which one is to run it; none: any
    is_dry_run: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Converted:
    """Fields of a `gridbot.Submission`, and what could not be said by them."""

    fields: dict[str, Any]
    notes: tuple[str, ...]
    is_dry_run: bool


def convert(spec: Spec, variables: Mapping[str, str], base: Path) -> Converted:
    """Return the BOT that a description asks for; local files are looked for from `base`.

    Raises BadInput that names the attribute and its value.
    """
    if isinstance(spec, Specs) and spec.kind == MULTI:
        return _together([_request(item, Variables(variables)) for item in spec.items], base)
    request = _request(spec, Variables(variables))
    fields = _common([request], base)
    if request.job_type == "single":  # one process that uses them all
        fields["cpus"] = request.count
    elif request.count > 1:
        fields["items"] = range(request.count)
    if request.stdin:
        fields["inputs"] = [*fields["inputs"], request.stdin]
        fields["stdin"] = Path(request.stdin).name
    fields["env"] = {name: literal(value) for name, value in request.environment.items()}
    fields["command"] = [_program(request), *map(literal, request.arguments)]
    return Converted(fields, request.notes, request.is_dry_run)


def _together(requests: list[Request], base: Path) -> Converted:
    """The subjobs of a multi-request, whose processes start at the same time."""
    jobs = list[dict[str, str]]()
    for request in requests:
        if request.stdin:
            raise BadInput(f"RSL: stdin {request.stdin}: subjobs of a multi-request have none")
        if request.job_type != "multiple":
            raise BadInput(f"RSL: job_type {request.job_type} of a subjob: only multiple is one")
        words = [f"{name}={value}" for name, value in request.environment.items()]
        words = ["env", *words, _program(request), *request.arguments]
        jobs += [{"line": f"exec {shlex.join(words)}"}] * request.count
        if len(jobs) > MOST_JOBS:
            raise BadInput(f"RSL: count: more than {MOST_JOBS} processes")
    fields = _common(requests, base)
    fields["inputs"] += sorted({item.executable for item in requests if _is_local(item, base)})
    fields |= {"command": ["sh", "-c", "{line}"], "items": jobs, "together": len(jobs)}
    notes = tuple(dict.fromkeys(note for item in requests for note in item.notes))
    return Converted(fields, notes, any(item.is_dry_run for item in requests))


def _common(requests: list[Request], base: Path) -> dict[str, Any]:
    """What is said of all jobs: as much of each resource as any of them needs."""
    fields: dict[str, Any] = {
        "inputs": sorted({path for item in requests for path in item.inputs}),
        "name": Path(requests[0].executable).name,
        "base": base,
    }
    if outputs := sorted({name for item in requests for name in item.outputs}):
        fields["outputs"] = ["stdout", *outputs]
    if minutes := [item.minutes for item in requests if item.minutes is not None]:
        fields["time"] = max(minutes) * 60.0
    if memory := [item.memory_mb for item in requests if item.memory_mb is not None]:
        fields["memory"] = max(memory)
    if grids := sorted({name for item in requests for name in item.grids}):
        named = " || ".join(f'Grid.Name == "{name}"' for name in grids)
        fields["policy"] = f"GridPolicy = {named};"
    return fields


def _program(request: Request) -> str:
    path = request.executable
    is_elsewhere = path.startswith("/") or "/" not in path
    return path if is_elsewhere else f"./{Path(path).name}"


def _is_local(request: Request, base: Path) -> bool:
    path = request.executable
    return "/" in path and not path.startswith("/") and (base / path).is_file()


# --------------------------------------------------------------------------- attributes


def _request(spec: Spec, variables: Variables) -> Request:
    """Read a conjunction, a lone relation, or alternatives that differ only in where they run."""
    if isinstance(spec, Relation):
        return _checked(_related(Request(), spec, variables))
    if spec.kind == MULTI:
        raise BadInput("RSL: a multi-request within another description")
    if spec.kind == OR:
        return _alternatives([_request(item, variables.copy()) for item in spec.items])
    request = Request()
    for item in spec.items:
        if isinstance(item, Relation):
            request = _related(request, item, variables)
        elif item.kind == AND:
            raise BadInput(f"RSL: {written(item)[:60]}: write its relations one after the other")
        else:
            request = _where(request, item, variables)
    return _checked(request)


def _where(request: Request, alternatives: Specs, variables: Variables) -> Request:
    """Alternatives within a conjunction, each a relation that names a grid."""
    named = list[str]()
    for item in alternatives.items:
        if alternatives.kind != OR or not isinstance(item, Relation) or item.name not in _WHERE:
            raise BadInput(
                f"RSL: {written(item)[:60]}: alternatives may differ in queue or"
                " resource_manager_contact only"
            )
        named += _related(Request(), item, variables).grids
    return replace(request, grids=(*request.grids, *named))


def _alternatives(requests: list[Request]) -> Request:
    first = requests[0]
    if any(replace(item, grids=()) != replace(first, grids=()) for item in requests):
        raise BadInput(
            "RSL: alternatives may differ in queue and resource_manager_contact only: GridBot"
            " chooses where a job runs, not which"
        )
    if not all(item.grids for item in requests):
        return replace(first, grids=())
    return replace(first, grids=tuple(name for item in requests for name in item.grids))


def _checked(request: Request) -> Request:
    if not request.executable:
        raise BadInput("RSL: executable is missing")
    return request


def _related(request: Request, relation: Relation, variables: Variables) -> Request:
    name, values = relation.name, values_of(relation, variables)
    if name == "rslsubstitution":
        variables.define(pairs(relation, values))
        return request
    if name in _IGNORED:
        note = f"{relation.attribute} is ignored: it is about a submission to GRAM"
        return replace(request, notes=(*request.notes, note))
    if name in STREAMS:
        if values == [_NOTHING]:
            return request
        note = f"{relation.attribute} is kept at the server: gridbot bot results shows it"
        return replace(request, notes=(*request.notes, note))
    if name in _WHERE:
        return replace(request, grids=(*request.grids, _grid(single(relation, values))))
    reader = _READERS.get(name)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise BadInput(f"RSL: {relation.attribute} is not supported; there are {known}")
    return reader(request, relation, values)


Reader = Callable[[Request, Relation, list[Found]], Request]


def _grid(contact: str) -> str:
    """The name of a grid: of a GRAM contact its host's."""
    name = contact.split("/")[0].split(":")[0]
    if not name.replace("-", "").replace(".", "").replace("_", "").isalnum():
        raise BadInput(f"RSL: {contact[:60]!r} is no name of a grid")
    return name


def _local(relation: Relation, url: str) -> str:
    if url.startswith("file://"):
        return url.removeprefix("file://")
    if "://" in url:
        raise BadInput(f"RSL: {relation.attribute} {url[:60]}: only local files are sent")
    return url


def _job_type(request: Request, relation: Relation, values: list[Found]) -> Request:
    kind = single(relation, values)
    if kind not in ("single", "multiple"):
        raise BadInput(
            f"RSL: job_type {kind[:60]!r}: single or multiple; for processes that start together"
            " write a multi-request, or gridbot submit --together"
        )
    return replace(request, job_type=kind)


def _minutes(request: Request, relation: Relation, values: list[Found]) -> Request:
    asked = number(relation, values)
    return replace(request, minutes=min(asked, request.minutes or asked))


def _memory(request: Request, relation: Relation, values: list[Found]) -> Request:
    asked = number(relation, values)
    return replace(request, memory_mb=max(asked, request.memory_mb or 0))


def _stage_in(request: Request, relation: Relation, values: list[Found]) -> Request:
    files = pairs(relation, values)
    sent = tuple(f"{_local(relation, url)}={Path(name).name}" for url, name in files.items())
    return replace(request, inputs=(*request.inputs, *sent))


def _stage_out(request: Request, relation: Relation, values: list[Found]) -> Request:
    files = pairs(relation, values)
    note = f"{relation.attribute}: gridbot bot results --output DIR brings the files"
    return replace(request, outputs=(*request.outputs, *files), notes=(*request.notes, note))


def _stdin(request: Request, relation: Relation, values: list[Found]) -> Request:
    path = _local(relation, single(relation, values))
    return request if path == _NOTHING else replace(request, stdin=path)


def _dry_run(request: Request, relation: Relation, values: list[Found]) -> Request:
    text = single(relation, values)
    if text not in ("yes", "no"):
        raise BadInput(f"RSL: dry_run {text[:60]!r}: expected yes or no")
    return replace(request, is_dry_run=text == "yes")


_READERS: Mapping[str, Reader] = {
    "executable": lambda request, relation, values: replace(
        request, executable=_local(relation, single(relation, values))
    ),
    "arguments": lambda request, relation, values: replace(
        request, arguments=texts(relation, values)
    ),
    "environment": lambda request, relation, values: replace(
        request, environment=pairs(relation, values)
    ),
    "count": lambda request, relation, values: replace(request, count=number(relation, values)),
    "jobtype": _job_type,
    "maxtime": _minutes,
    "maxwalltime": _minutes,
    "maxcputime": _minutes,
    "minmemory": _memory,
    "maxmemory": _memory,
    "stdin": _stdin,
    "filestagein": _stage_in,
    "filestageinshared": _stage_in,
    "filestageout": _stage_out,
    "dryrun": _dry_run,
}
