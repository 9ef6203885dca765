"""A cluster for tests: a fake kubectl with objects in a folder and processes as pods."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

FAKE = Path(__file__).parent.parent / "fakes" / "bin" / "kubectl"


@dataclass(frozen=True)
class KubernetesCluster:
    """One such cluster; see the fake for the files by which it is told to misbehave."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> KubernetesCluster:
        """Make an empty one."""
        folder.mkdir(parents=True)
        (folder / "kubectl").symlink_to(FAKE)
        return cls(folder)

    @property
    def path(self) -> str:
        """PATH on which its kubectl is the first."""
        return f"{self.folder}:{os.environ['PATH']}"

    def tell(self, name: str, text: str) -> None:
        """Tell it how to behave."""
        (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[list[str]]:
        """Arguments of all calls so far."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def names(self, kind: str) -> set[str]:
        """Objects of a kind: secrets or jobs."""
        return set(json.loads((self.folder / "objects.json").read_text())[kind])
