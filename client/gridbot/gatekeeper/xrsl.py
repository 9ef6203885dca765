"""Job descriptions in xRSL, ARC's extended form of RSL.  Pure.

https://www.nordugrid.org/arc/arc6/users/xrsl.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from gridbot.api.errors import BadInput
from gridbot.gatekeeper.descriptions import JobDescription, SentFile
from gridbot.rsl.syntax import AND, MULTI, Relation, Spec, Specs, Variables, plain_name, written
from gridbot.rsl.values import Found, number, pairs, single, texts, values_of

# Attributes that choose a cluster, are about other middleware, or are for information only.
_IGNORED = frozenset(
    map(
        plain_name,
        (
            "action", "architecture", "cache", "clientSoftware", "clientXRSL", "cluster",
            "credentialServer", "ftpThreads", "gmLog", "hostName", "jobReport", "lifeTime",
            "middleware", "notify", "opSys", "priority", "rerun", "saveState", "countPerNode",
        ),
    )
)  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AMOUNT = re.compile(r"(?<![0-9])([0-9]{1,9})(?![0-9])\s*([a-z]*)")
_PERIOD = re.compile(r"pt?(?=.)(?:([0-9]{1,5})d)?t?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?"
                     r"(?:([0-9]{1,9})s)?")  # fmt: skip
# For a file that the client sends, its size, and maybe a checksum, stand in place of a URL.
_SIZE = re.compile(r"[0-9]*(\.[0-9a-f]*)?")

Reader = Callable[[JobDescription, Relation, list[Found]], JobDescription]


def described(spec: Spec) -> JobDescription:
    """The job of a conjunction.  Raises BadInput that names the attribute and its value."""
    if not isinstance(spec, Specs) or spec.kind != AND:
        raise BadInput(f"xRSL: {written(spec)[:60]}: expected & and relations in parentheses")
    job, programs, is_joined = JobDescription(""), frozenset[str](), False
    variables = Variables({})
    for item in spec.items:
        if not isinstance(item, Relation):
            raise BadInput(f"xRSL: {written(item)[:60]}: alternatives are not supported")
        values = values_of(item, variables)
        if item.name == "rslsubstitution":
            variables.define(pairs(item, values))
        elif item.name == "executables":
            programs = frozenset(texts(item, values))
        elif item.name == "join":
            is_joined = _is_yes(item, values)
        elif item.name not in _IGNORED:
            job = _reader(item)(job, item, values)
    if is_joined:  # wherever stdout stands
        job = replace(job, stderr=job.stdout)
    inputs = (replace(file, is_executable=file.name in programs) for file in job.inputs)
    return replace(job, inputs=tuple(inputs))


def jobs_in(spec: Spec) -> tuple[Spec, ...]:
    """The descriptions of which a multi-request is made; else the one that it is."""
    return spec.items if isinstance(spec, Specs) and spec.kind == MULTI else (spec,)


def _reader(relation: Relation) -> Reader:
    reader = _READERS.get(relation.name)
    if reader is None:
        known = ", ".join(sorted({*_READERS, "join"}))
        raise BadInput(f"xRSL: {written(relation)[:60]}: not supported; there are {known}")
    return reader


def seconds(text: str, unit: int) -> int | None:
    """A time such as 90, "2 hours", "1d 6h" or PT90M; a number alone is multiplied by `unit`."""
    plain = text.strip().lower()
    if period := _PERIOD.fullmatch(plain):
        days, hours, minutes, rest = (int(part or 0) for part in period.groups())
        return days * 86_400 + hours * 3600 + minutes * 60 + rest
    amounts = _AMOUNT.findall(plain)
    if not amounts or _AMOUNT.sub("", plain).strip(" ,"):
        return None
    factors = [_SECONDS.get(word[:1], 0) if word else unit for _, word in amounts]
    total = sum(int(count) * factor for (count, _), factor in zip(amounts, factors, strict=True))
    return total if all(factors) else None


def _time(relation: Relation, values: list[Found]) -> int:
    found = seconds(single(relation, values), 60)
    if not found:
        raise BadInput(f"xRSL: {written(relation)[:60]}: expected minutes, or 2 hours, or PT2H")
    return found


def _wall_time(job: JobDescription, relation: Relation, values: list[Found]) -> JobDescription:
    return replace(job, seconds=_time(relation, values))


def _cpu_time(job: JobDescription, relation: Relation, values: list[Found]) -> JobDescription:
    """The limit of a job that names no wall clock time."""
    return replace(job, seconds=job.seconds or _time(relation, values))


def _inputs(job: JobDescription, relation: Relation, values: list[Found]) -> JobDescription:
    for name, source in pairs(relation, values).items():
        if not _SIZE.fullmatch(source):
            raise BadInput(
                f"xRSL: {relation.attribute}: {name[:60]} from {source[:60]}: URLs are not"
                " supported; the client sends input files"
            )
    return replace(job, inputs=(*job.inputs, *map(SentFile, pairs(relation, values))))


def _outputs(job: JobDescription, relation: Relation, values: list[Found]) -> JobDescription:
    for name, target in pairs(relation, values).items():
        if target:
            raise BadInput(
                f"xRSL: {relation.attribute}: {name[:60]} to {target[:60]}: URLs are not"
                " supported; the client fetches output files"
            )
    return replace(job, outputs=(*job.outputs, *pairs(relation, values)))


def _is_yes(relation: Relation, values: list[Found]) -> bool:
    word = single(relation, values).lower()
    if word not in ("yes", "no", "true", "false"):
        raise BadInput(f"xRSL: {written(relation)[:60]}: expected yes or no")
    return word in ("yes", "true")


_READERS: Mapping[str, Reader] = {
    "executable": lambda job, relation, values: replace(job, executable=single(relation, values)),
    "arguments": lambda job, relation, values: replace(job, arguments=texts(relation, values)),
    "jobname": lambda job, relation, values: replace(job, name=single(relation, values)),
    "stdin": lambda job, relation, values: replace(job, stdin=single(relation, values)),
    "stdout": lambda job, relation, values: replace(job, stdout=single(relation, values)),
    "stderr": lambda job, relation, values: replace(job, stderr=single(relation, values)),
    "inputfiles": _inputs,
    "outputfiles": _outputs,
    "environment": lambda job, relation, values: replace(
        job, environment={**job.environment, **pairs(relation, values)}
    ),
    "count": lambda job, relation, values: replace(job, slots=number(relation, values)),
    "memory": lambda job, relation, values: replace(job, memory_mb=number(relation, values)),
    "disk": lambda job, relation, values: replace(job, disk_mb=number(relation, values)),
    "walltime": _wall_time,
    "cputime": _cpu_time,
    "queue": lambda job, relation, values: replace(job, queue=single(relation, values)),
}
