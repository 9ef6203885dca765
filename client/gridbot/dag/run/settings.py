"""How a run is started: options of condor_submit_dag, and DAGMAN_* settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.dag.engine.limits import Throttles

_TRUE, _FALSE = ("true", "yes", "1", "t"), ("false", "no", "0", "f")
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*=(.*)")


@dataclass(frozen=True)
class RunOptions:
    """What the user says at the start; None is what the settings say."""

    force: bool = False
    max_jobs: int | None = None
    max_idle: int | None = None
    max_pre: int | None = None
    max_post: int | None = None
    max_hold: int | None = None
    use_dag_dir: bool = False
    auto_rescue: bool | None = None
    rescue_from: int | None = None
    rescue_file: str = ""
    load_save: str = ""
    dump_rescue: bool = False
    always_run_post: bool | None = None
    priority: int = 0
    config: str = ""
    name: str = ""  # of the BOTs
    variables: Mapping[str, str] = field(default_factory=dict)  # beside those of this process
    must_resume: bool = False  # an interrupted run; begin none


@dataclass(frozen=True)
class DagmanSettings:
    """DAGMAN_* settings that mean something here."""

    limits: Throttles = field(default_factory=Throttles)
    strict: int = 1
    auto_rescue: bool = True
    max_rescue: int = 100
    reset_retries: bool = True
    prohibit_multi_jobs: bool = False
    munge: bool = True
    join_nodes: bool = True
    append_variables: bool = False
    any_names: bool = False
    cycle_detect: bool = False


_LIMITS = {
    "max_jobs_submitted": "max_jobs",
    "max_jobs_idle": "max_idle",
    "max_pre_scripts": "max_pre",
    "max_post_scripts": "max_post",
    "max_hold_scripts": "max_hold",
    "max_submit_attempts": "submit_attempts",
    "always_run_post": "always_run_post",
    "retry_node_first": "retry_node_first",
    "submit_depth_first": "depth_first",
    "node_job_failure_tolerance": "job_failures",
    "remove_job_list_on_failure": "remove_others",
}
_OTHERS = {
    "use_strict": "strict",
    "auto_rescue": "auto_rescue",
    "max_rescue_num": "max_rescue",
    "reset_retries_upon_rescue": "reset_retries",
    "prohibit_multi_jobs": "prohibit_multi_jobs",
    "munge_node_names": "munge",
    "use_join_nodes": "join_nodes",
    "default_append_vars": "append_variables",
    "allow_any_node_name_characters": "any_names",
    "startup_cycle_detect": "cycle_detect",
}


def settings_of(text: str, source: str, options: RunOptions) -> DagmanSettings:
    """Settings of a CONFIG file's text, and of the options, which win.  Raises BadInput."""
    given = _assignments(text, source)
    limits, others = dict[str, Any](), dict[str, Any]()
    defaults = DagmanSettings()
    for names, kept, before in ((_LIMITS, limits, defaults.limits), (_OTHERS, others, defaults)):
        for name, attribute in names.items():
            if (value := given.get(f"dagman_{name}")) is not None:
                kept[attribute] = _value(value, getattr(before, attribute), name, source)
    wanted = {
        "max_jobs": options.max_jobs,
        "max_idle": options.max_idle,
        "max_pre": options.max_pre,
        "max_post": options.max_post,
        "max_hold": options.max_hold,
        "always_run_post": options.always_run_post,
        "priority": options.priority,
    }
    limits |= {name: value for name, value in wanted.items() if value is not None}
    if options.auto_rescue is not None:
        others["auto_rescue"] = options.auto_rescue
    return replace(defaults, limits=Throttles(**limits), **others)


def read_settings(path: str, base: Path, options: RunOptions) -> DagmanSettings:
    """Settings of a CONFIG file, or the usual ones for an empty path.  Raises BadInput."""
    if not path:
        return settings_of("", "", options)
    try:
        text = (base / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"config file {path}: {error}") from None
    return settings_of(text, path, options)


def _assignments(text: str, source: str) -> Mapping[str, str]:
    found = {}
    for number, line in enumerate(text.replace("\\\n", "").split("\n"), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not (match := _LINE.fullmatch(line.strip())):
            raise BadInput(
                f"{source}:{number}: {line.strip()[:80]!r} is not of the form NAME = value"
            )
        found[match[1].casefold()] = match[2].strip()
    return found


def _value(text: str, usual: object, name: str, source: str) -> bool | int:
    if isinstance(usual, bool):
        if text.casefold() in _TRUE + _FALSE:
            return text.casefold() in _TRUE
    elif text.lstrip("-").isdigit():
        return int(text)
    raise BadInput(f"{source}: DAGMAN_{name.upper()}: {text!r} is no {type(usual).__name__}")
