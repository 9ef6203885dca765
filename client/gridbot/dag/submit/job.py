"""One job of a submit description: its keys, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from gridbot.dag.submit import words
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.macros import Macros, value_of, whole

UNIVERSES = {
    "standard": 1, "vanilla": 5, "scheduler": 7, "mpi": 8, "grid": 9, "java": 10, "parallel": 11,
    "local": 12, "vm": 13, "docker": 5, "container": 5,
}  # fmt: skip
LOCAL = (7, 12)
NULL = "/dev/null"
_CANNOT = ("standard", "mpi", "grid", "java", "parallel", "vm")
_UNITS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"([0-9.]+)\s*([BKMGTP])(?:I?B)?", re.IGNORECASE)
_TRUE = ("true", "t", "yes", "1")
_FALSE = ("false", "f", "no", "0")
# Accepted, though they change nothing here.
WITHOUT_EFFECT = (
    "notification", "notify_user", "log", "stream_output", "stream_error", "stream_input",
    "periodic_hold", "periodic_release", "periodic_remove", "on_exit_hold", "on_exit_remove",
    "leave_in_queue", "accounting_group", "accounting_group_user", "concurrency_limits",
    "nice_user", "job_lease_duration", "coresize", "copy_to_spool", "want_graceful_removal",
    "kill_sig", "batch_name", "use_x509userproxy", "x509userproxy", "getenv_note",
    "success_exit_code", "retry_until", "allowed_job_duration", "encrypt_input_files",
)  # fmt: skip


@dataclass(frozen=True)
class SubmitJob:
    """What a description says about one job.  Paths are relative to `iwd`."""

    executable: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    input: str = NULL
    output: str = NULL
    error: str = NULL
    iwd: str = "."
    universe: int = 5
    universe_name: str = "vanilla"
    transfer_executable: bool = True
    transfer_input: tuple[str, ...] = ()
    transfer_output: tuple[str, ...] | None = None  # None: all new files
    remaps: str = ""
    should_transfer: str = "IF_NEEDED"
    when_transfer: str = "ON_EXIT"
    cpus: int = 1
    memory_mb: int | None = None
    disk_kib: int | None = None
    gpus: int = 0
    requirements: str = ""
    rank: str = ""
    priority: int = 0
    max_retries: int | None = None
    image: str = ""
    hold: bool = False
    noop: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether it runs on the submitting machine."""
        return self.universe in LOCAL

    @property
    def output_names(self) -> Mapping[str, str]:
        """Where outputs go that are not to keep their names."""
        pairs = (item.partition("=") for item in self.remaps.split(";"))
        return {old.strip(): new.strip() for old, equals, new in pairs if equals}


def job_of(macros: Macros, directory: Path) -> SubmitJob:
    """The job that these macros describe.  Raises SubmitError."""
    get = macros.get
    universe = (get("universe", "JobUniverse") or "vanilla").casefold()
    if universe.isdigit():
        universe = next((name for name, n in UNIVERSES.items() if str(n) == universe), universe)
    if universe not in UNIVERSES:
        raise SubmitError(f"universe: {universe!r} is none of {', '.join(UNIVERSES)}")
    executable = get("executable", "cmd") or ""
    image = get("container_image", "docker_image") or ""
    if not executable and not image:
        raise SubmitError("executable: the description names no program")
    output = get("transfer_output_files", "TransferOutput")
    retries = get("max_retries")
    if retries is None and (get("retry_until") or get("success_exit_code")):
        retries = "2"
    return SubmitJob(
        executable=executable,
        arguments=tuple(words.arguments(get("arguments", "args") or "")),
        environment=_environment(macros),
        input=get("input", "stdin", "in") or NULL,
        output=get("output", "stdout", "out") or NULL,
        error=get("error", "stderr", "err") or NULL,
        iwd=_folder(get("initialdir", "initial_dir", "iwd") or "", directory),
        universe=UNIVERSES[universe],
        universe_name=universe,
        transfer_executable=_flag(macros, "transfer_executable", usual=True),
        transfer_input=_list(get("transfer_input_files", "TransferInput") or ""),
        transfer_output=None if output is None else _list(output),
        remaps=_unquoted(get("transfer_output_remaps", "TransferOutputRemaps") or ""),
        should_transfer=_word(macros, "should_transfer_files", "IF_NEEDED", "YES", "NO"),
        when_transfer=_word(
            macros, "when_to_transfer_output", "ON_EXIT", "ON_EXIT_OR_EVICT", "ON_SUCCESS"
        ),
        cpus=max(1, _number(macros, "request_cpus", 1)),
        memory_mb=_size(macros, "request_memory", 2),
        disk_kib=_size(macros, "request_disk", 1),
        gpus=max(0, _number(macros, "request_gpus", 0)),
        requirements=get("requirements") or "",
        rank=get("rank", "preferences") or "",
        priority=_number(macros, "priority", 0, "prio"),
        max_retries=None if retries is None else _integer(retries, "max_retries"),
        image=image,
        hold=_flag(macros, "hold", usual=False),
        noop=_flag(macros, "noop_job", usual=False),
        attributes={name: _literal(text) for name, text in macros.attributes().items()},
        warnings=tuple(_warnings(macros)),
    )


def refuse_impossible(job: SubmitJob) -> None:
    """Raise SubmitError for what GridBot does not run."""
    if job.universe_name in _CANNOT:
        raise SubmitError(
            f"universe: jobs of {job.universe_name} cannot run here; vanilla, container, docker,"
            " local and scheduler can"
        )


def _warnings(macros: Macros) -> list[str]:
    return [
        f"{key} has no effect here"
        for key in WITHOUT_EFFECT
        if (value := macros.raw(key)) and value.casefold() not in ("never", "false")
    ]


def _environment(macros: Macros) -> dict[str, str]:
    """Variables that are set, and those of the submitter that getenv takes."""
    taken: dict[str, str] = {}
    asked = macros.get("getenv", "get_env") or ""
    if asked and asked.casefold() not in _FALSE:
        patterns = ["*"] if asked.casefold() in _TRUE else re.split(r"[,\s]+", asked)
        wanted = [item for item in patterns if not item.startswith("!")]
        refused = [item[1:] for item in patterns if item.startswith("!")]
        taken = {
            name: value
            for name, value in macros.environment.items()
            if any(fnmatchcase(name, item) for item in wanted or ["*"])
            and not any(fnmatchcase(name, item) for item in refused)
        }
    return taken | words.environment(macros.get("environment", "env", "environment2") or "")


def _folder(text: str, directory: Path) -> str:
    if text and not (directory / text).is_dir():
        raise SubmitError(f"initialdir: {text} is no folder")
    return text or "."


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in _unquoted(text).split(",") if item.strip())


def _flag(macros: Macros, key: str, *, usual: bool) -> bool:
    text = (macros.get(key) or "").casefold()
    if not text:
        return usual
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    value = value_of(text)
    if isinstance(value, bool | int | float):
        return bool(value)
    raise SubmitError(f"{key}: {text!r} is neither true nor false")


def _word(macros: Macros, key: str, *known: str) -> str:
    word = (macros.get(key) or known[0]).upper()
    if key == "should_transfer_files":
        word = {"TRUE": "YES", "FALSE": "NO"}.get(word, word)
    if word not in known:
        raise SubmitError(f"{key}: {word!r} is none of {', '.join(known)}")
    return word


def _integer(text: str, key: str) -> int:
    value = value_of(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SubmitError(f"{key}: {text!r} is no number")
    return whole(value, f"{key}: {text!r}")


def _number(macros: Macros, key: str, usual: int, *others: str) -> int:
    text = macros.get(key, *others)
    return usual if not text else _integer(text, key)


def _size(macros: Macros, key: str, unit: int) -> int | None:
    """A size in units of 1024 ** unit bytes, which is meant if the value says none."""
    text = macros.get(key)
    if not text or text.casefold() == "undefined":
        return None
    if found := _SIZE.fullmatch(text):
        power = _UNITS[found[2].upper()] - unit
        try:
            return ceil(float(found[1]) * 1024.0**power)
        except (ValueError, OverflowError):
            raise SubmitError(f"{key}: {text!r} is no size") from None
    value = value_of(text)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value < 0
        or not isfinite(value)
    ):
        raise SubmitError(f"{key}: {text!r} is no size; write a number, or 2GB")
    return ceil(value)


def _literal(text: str) -> Any:
    """Value of an attribute that is a literal, else its expression."""
    found = value_of(text)
    if isinstance(found, str) and text.startswith('"'):
        return found
    if text.casefold() in ("true", "false"):
        return text.casefold() == "true"
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if re.fullmatch(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?", text):
        return float(text)
    return text
