"""The whole origin of a file: what made it, what made what that read, and so on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gridbot.api.documents import MakingJob
from gridbot.api.errors import NotFound
from gridbot.api.session import Session

_MOST = 1000  # files that are looked up


@dataclass(frozen=True)
class FileOrigin:
    """Files by their hashes, with the latest job that made each; none made what was sent."""

    sha256: str
    made_by: Mapping[str, MakingJob] = field(default_factory=dict)
    is_whole: bool = True  # false: there is more than was looked up

    def steps(self) -> Iterator[tuple[int, str, str]]:
        """Yield depth, hash and name of each file that it comes from."""
        seen, left = set[str](), [(0, self.sha256, "")]
        while left:
            depth, sha256, name = left.pop()
            yield depth, sha256, name
            job = self.made_by.get(sha256)
            if job is None or sha256 in seen:
                continue
            seen.add(sha256)
            read = ((depth + 1, file["sha256"], file["name"]) for file in job["inputs"])
            left += reversed([*read])


def origin_of(session: Session, sha256: str) -> FileOrigin:
    """Look it up.  Raises NotFound for a content that no job made or read."""
    made: dict[str, MakingJob] = {}
    wanted, known = [sha256], {sha256}
    for number, one in enumerate(wanted):
        if number == _MOST:
            return FileOrigin(sha256, made, is_whole=False)
        try:
            found = session.why(one)["made_by"]
        except NotFound:
            if one == sha256:
                raise
            continue
        if not found:
            continue
        made[one] = found[0]
        fresh = [file["sha256"] for file in found[0]["inputs"] if file["sha256"] not in known]
        wanted += dict.fromkeys(fresh)
        known.update(fresh)
    return FileOrigin(sha256, made)


def crate_of(origin: FileOrigin) -> dict[str, Any]:
    """The origin as RO-Crate: ro-crate-metadata.json of a Process Run Crate (profile 0.5)."""
    files: dict[str, dict[str, Any]] = {}
    actions: list[dict[str, Any]] = []
    for sha256, job in origin.made_by.items():
        files[sha256] = _file(sha256, job["output"], job["size"])
    for sha256, job in origin.made_by.items():
        for used in job["inputs"]:
            files.setdefault(used["sha256"], _file(used["sha256"], used["name"], used["size"]))
        actions.append(_action(sha256, job))
    files.setdefault(origin.sha256, _file(origin.sha256, origin.sha256, None))
    programs = {item["instrument"]["@id"]: item["name"] for item in actions}
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Origin of {files[origin.sha256]['name']}",
        "description": "What made this file from what, as a GridBot server tells it.",
        "conformsTo": {"@id": "https://w3id.org/ro/wfrun/process/0.5"},
        "hasPart": [{"@id": item["@id"]} for item in files.values()],
        "mentions": [{"@id": item["@id"]} for item in actions],
        "mainEntity": {"@id": files[origin.sha256]["@id"]},
    }
    descriptor = {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    software = [
        {"@id": id, "@type": "SoftwareApplication", "name": name} for id, name in programs.items()
    ]
    graph = [descriptor, root, *files.values(), *actions, *software]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _file(sha256: str, name: str, size: int | None) -> dict[str, Any]:
    found = {"@id": f"urn:sha256:{sha256}", "@type": "File", "name": name, "sha256": sha256}
    return found if size is None else {**found, "contentSize": str(size)}


def command_of(job: MakingJob) -> str:
    """What the job ran, as a line; of several programs all, of which its host ran one."""
    programs = job.get("programs")  # servers before them say nothing
    if not programs:
        return shlex.join(job["command"])
    lines = (f"{item['where']}: {shlex.join(item['command'])}" for item in programs)
    return f"one of {'; '.join(lines)}"


def _instrument(job: MakingJob) -> dict[str, str]:
    """The program, or what stands for several of which nobody knows which one ran."""
    several = f"#bot-{job['bot']}-programs" if job.get("programs") else ""
    return {"@id": several or f"#{job['command'][0]}"}


def _action(sha256: str, job: MakingJob) -> dict[str, Any]:
    return {
        "@id": f"#bot-{job['bot']}-job-{job['job']}-{sha256[:8]}",
        "@type": "CreateAction",
        "name": job["name"],
        "description": command_of(job),
        "endTime": job["ended_at"],
        "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
        "instrument": _instrument(job),
        "object": [{"@id": f"urn:sha256:{file['sha256']}"} for file in job["inputs"]],
        "result": [{"@id": f"urn:sha256:{sha256}"}],
    }
