"""The pages for newcomers name only what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "SECURITY.md")),
    ROOT / "docs" / "battery.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
# A path from the checkout's top: a folder, or a file with an ending.
TOPS = ("client", "docs", "overlay", "policies", "scripts", "server", "tests")
PATH = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./*-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_link_of_a_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [path for path in PATH.findall(text) if not list(ROOT.glob(path.rstrip("/")))]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_each_way_through_the_code_takes_at_most_seven_files() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    ways = text.partition("## Four paths")[2].partition("## Where state lives")[0]
    steps = [int(number) for number in re.findall(r"^\| (\d) \|", ways, re.M)]
    assert steps.count(1) == 4
    assert max(steps) <= 7


# A test by its file and name.
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = TEST.findall((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [
        f"{path}::{name}"
        for path, name in named
        if f"\ndef {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def test_every_line_of_the_threat_model_names_a_test_or_a_gap() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("## Threat model")[2].partition("## Known gaps")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert [line for line in lines if "`tests/" not in line and "a known gap" not in line] == []
