"""Text that people read uses the field's terms; phrases with a standard term do not return."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gridbot.cli import gridbot

ROOT = Path(__file__).resolve().parents[2]
INSTEAD_OF: dict[str, str] = tomllib.loads(
    (ROOT / "tests" / "data" / "private_words.toml").read_text()
)["instead_of"]
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def found_in(text: str) -> list[str]:
    """Return the private phrases in a text outside `code`, each with its standard term."""
    plain = " ".join(_CODE.sub(" ", text).split())
    return [
        f"{match[0]!r}: {term}"
        for phrase, term in INSTEAD_OF.items()
        if (match := re.search(phrase, plain, re.IGNORECASE))
    ]


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for verb in command.list_commands(context):
            inner = command.get_command(context, verb)
            assert inner is not None
            yield from commands(inner, f"{name} {verb}")


COMMANDS = dict(commands(gridbot, "gridbot"))
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("", "client", "docs", "overlay", "policies", "scripts", "server", "tests")
    for path in (ROOT / folder).glob("**/*.md" if folder else "*.md")
)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_uses_standard_terms(name: str) -> None:
    command = COMMANDS[name]
    assert found_in(command.get_help(click.Context(command, info_name=name))) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_says_what_it_does(name: str) -> None:
    options = (option for option in COMMANDS[name].params if isinstance(option, click.Option))
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.count(" ") == 2])
def test_the_line_of_a_command_in_its_groups_list_is_whole(name: str) -> None:
    group, _, verb = name.rpartition(" ")
    listed = COMMANDS[group].get_help(click.Context(COMMANDS[group], terminal_width=80))
    lines = listed.rpartition("Commands:\n")[2].splitlines()
    (line,) = [line for line in lines if line.startswith(f"  {verb} ")]
    assert not line.endswith("...")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_uses_standard_terms(page: str) -> None:
    assert found_in((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_pages_are_found() -> None:
    assert {"README.md", "server/README.md", "docs/decisions/README.md"} <= set(PAGES)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a pilot that is not needed is\ntaken back", "cancel"),
        ("Shutting a machine out", "ban"),
        ("Exit when nothing was held for so long.", "name the time or the number"),
        ("1 of 3 things are not right", "checks failed"),
    ],
)
def test_a_private_phrase_is_found(text: str, term: str) -> None:
    assert [found.rpartition(": ")[2] for found in found_in(text)] == [term]


def test_code_is_not_searched() -> None:
    assert found_in("write `knob`, and\n```\nthings are not right\n```\n") == []


def test_an_ordinary_text_holds_no_private_phrase() -> None:
    assert found_in("look at the log; give the key back to Ada as long as it takes") == []
