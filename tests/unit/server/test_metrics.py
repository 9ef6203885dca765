"""What processes count is one sum; the dashboard asks for what is there, in words of PromQL."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client import Histogram
from tests.prometheus import promtool

from gridbot_server import metrics

DASHBOARD: dict[str, Any] = json.loads(metrics.dashboard())
COUNT = """
from gridbot_server import metrics
metrics.DISPATCHED.labels("ice").inc(2)
metrics.VERDICT_LAG.observe(0.2)
"""
RENDER = "from gridbot_server import metrics; print(metrics.render())"


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, metrics.FOLDER_VARIABLE: str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    return done.stdout.decode()


def test_several_processes_also_those_that_are_gone_are_added_up(tmp_path: Path) -> None:
    for _ in range(3):
        run(COUNT, tmp_path)
    lines = run(RENDER, tmp_path).splitlines()
    assert 'gridbot_replicas_dispatched_total{grid="ice"} 6.0' in lines
    assert 'gridbot_verdict_lag_seconds_bucket{le="0.25"} 3.0' in lines


def test_reasons_of_hosts_own_making_are_few_series() -> None:
    reasons = metrics.Reasons()
    found = {reasons.label(f"made_up_{number}") for number in range(500)}
    assert len(found) == 51
    assert "other" in found


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_only_for_metrics_that_there_are() -> None:
    api = Path(sys.modules["gridbot_server"].__file__ or "").parent / "api/operation.py"
    gauges = re.findall(r'"([a-z_]+)": "', api.read_text()) + re.findall(
        r'_gauge\(\s*"([a-z_]+)"', api.read_text()
    )
    there = {f"gridbot_{name}" for name in [*gauges, "inversions_total"]}
    for line in metrics.render().splitlines():
        if line.startswith("# TYPE"):
            name, kind = line.split()[2:]
            there |= {f"{name}_bucket"} if kind == "histogram" else {name}
    asked = {name for text in expressions() for name in re.findall(r"gridbot_[a-z_]+", text)}
    assert asked <= there


def test_panels_do_not_overlap_and_each_has_a_title() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        assert panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_prometheus_understands_each_question_of_the_dashboard(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    asked = [
        text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in expressions()
    ]
    rules.write_text(
        json.dumps(
            {
                "groups": [
                    {
                        "name": "dashboard",
                        "rules": [
                            {"record": f"asked:{number}", "expr": text}
                            for number, text in enumerate(asked)
                        ],
                    }
                ]
            }
        )
    )
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(rules))


def test_values_observed_together_count_as_those_observed_one_by_one() -> None:
    values, bounds = [3.0, 0.1, 0.0, 0.1, 0.25, 1e9], (0.1, 0.2, 0.25, 5.0)
    together = metrics.BatchHistogram("h", "", buckets=bounds, registry=None)
    together.observe_all(values)
    one_by_one = Histogram("h", "", buckets=bounds, registry=None)
    for value in values:
        one_by_one.observe(value)
    assert counts(together) == counts(one_by_one)
    assert counts(together)["h_count", ()] == len(values)


def counts(histogram: Histogram) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    (family,) = histogram.collect()
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
