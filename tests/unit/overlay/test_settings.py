"""Claims about overlay.toml: what is written is read, and a slip is named with what was meant."""

import math
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from gridbot.api.errors import BadInput
from gridbot_overlay.settings import OverlaySettings, grid_of, grid_text, read_settings

KINDS = ("local", "slurm")


def read(folder: Path, text: str) -> OverlaySettings:
    path = folder / "overlay.toml"
    path.write_text(text)
    return read_settings(path, KINDS)


def test_no_file_means_no_grid(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "overlay.toml", KINDS) == OverlaySettings()


def test_all_that_a_grid_may_have_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [server]
        url = "https://grid.example.org"
        key_file = "operator.key"
        [grids.big]
        kind = "slurm"
        price_per_core_hour = 0.025
        is_dedicated = true
        shared_cache = "/home/grid/cache"
        setup = ["module load python/3.12"]
        directives = ["--partition=long"]
        shape = { cpus = 4, walltime_seconds = 7200 }
        [grids.big.limits]
        max_running = 7
        budget_pilot_hours = 100
        budget = 50.0
        budget_period = "day"
        [grids.big.options]
        anything = ["as its kind", "wants"]
        """,
    )
    big = found.grid("big")
    assert found.server == "https://grid.example.org"
    assert found.key_file == tmp_path / "operator.key"
    assert (big.shape.cpus, big.shape.walltime_seconds, big.shape.idle_seconds) == (4, 7200, 60)
    assert (big.limits.max_running, big.limits.budget_pilot_hours) == (7, 100.0)
    assert (big.price, big.limits.budget, big.limits.budget_period) == (0.1, 50.0, "day")
    assert big.setup == ("module load python/3.12",)
    assert big.shared_cache == "/home/grid/cache"
    assert big.options == {"anything": ["as its kind", "wants"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid = 1", "unknown key 'grid'; did you mean grids?"),
        ("grids = 1", r"grids must be a table, \[grids\], not 1"),
        ("[server]\nkey = 'x'", r"\[server\]: unknown key 'key'; known keys: url, key_file"),
        ("[grids.a]", 'grids.a: kind is missing; write kind = "slurm"'),
        ("[grids.a]\nkind = 'slrum'", "grids.a.kind: unknown kind 'slrum'; did you mean slu"),
        ("[grids.a]\nkind = 'pbs'", "unknown kind 'pbs'; known: local, slurm"),
        ("[grids.a]\nkind = 'local'\nmax_runing = 1", r"\[grids.a\]: unknown key 'max_runing'"),
        (
            "[grids.a]\nkind = 'local'\nlimits.budget = 5.0",
            "grids.a.limits.budget needs a price of pilots: write grids.a.price = 0.1",
        ),
        (
            "[grids.a]\nkind = 'local'\nprice = 1.0\nprice_per_core_hour = 1.0",
            "grids.a: price and price_per_core_hour say the same: leave one out",
        ),
        (
            "[grids.a]\nkind = 'local'\nlimits.budget_period = 'week'",
            'budget_period must be "day" or "month" or "ever", not \'week\'',
        ),
        (
            "[grids.a]\nkind = 'local'\nlimits.max_runing = 1",
            r"\[grids.a.limits\]: unknown key 'max_runing'; did you mean max_running?",
        ),
        (
            "[grids.a]\nkind = 'local'\nlimits.max_running = -1",
            "grids.a.limits.max_running must be a whole number of at least 0, not -1",
        ),
        (
            "[grids.a]\nkind = 'local'\nshape.cpus = true",
            "grids.a.shape.cpus must be a whole number of at least 1, not True",
        ),
        (
            "[grids.a]\nkind = 'local'\nlimits.budget_pilot_hours = 0",
            "budget_pilot_hours must be a number above 0, not 0",
        ),
        (
            "[grids.a]\nkind = 'local'\nlimits.budget_pilot_hours = nan",
            "budget_pilot_hours must be a number above 0, not nan",
        ),
        ("[grids.a]\nkind = 'local'\nsetup = 'x'", "setup must be a list of strings, not 'x'"),
        (
            "[grids.a]\nkind = 'local'\nshared_cache = '~/cache'",
            "grids.a.shared_cache must be a whole path, from / on, not '~/cache'",
        ),
        ("[grids.'a b']\nkind = 'local'", "a grid's name may have only letters, digits"),
        ("[grids.a", "overlay.toml: "),
    ],
)
def test_a_slip_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(tmp_path, text)


def test_an_unknown_grid_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    settings = read(tmp_path, "[grids.alpha]\nkind = 'local'")
    with pytest.raises(BadInput, match="unknown grid 'alpah'; did you mean alpha"):
        settings.grid("alpah")


@pytest.mark.parametrize("name", ["a", "a.b", "9-x"])
def test_a_grid_that_is_written_is_read_as_it_was(tmp_path: Path, name: str) -> None:
    table = {
        "kind": "slurm",
        "python": '/opt/"odd"\\path\x7f é',
        "is_dedicated": True,
        "setup": ["a", "b"],
        "shape": {"cpus": 2},
        "limits": {"budget_pilot_hours": 1.5},
        "options": {
            "through": ["ssh", "login"],
            "n": 3,
            "environment": {"A": "1 =", "b c": "x"},
            "large": [1e16, math.inf],
            "day": date(2026, 11, 21),
            "at": datetime(2026, 11, 21, 7, 32, tzinfo=UTC),
        },
    }
    found = read(tmp_path, grid_text(name, table))
    assert found.grid(name) == grid_of(name, table, KINDS)
