"""DAG files that HTCondor's own library writes (`htcondor2.dags`) are read as they were meant.

Its `max_jobs_by_category` is left out: it writes `CATEGORY`, where DAGMan reads `MAXJOBS`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gridbot.dag.language.reader import Reading

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("htcondor2") is None, reason="HTCondor's library is not here"
)


def test_a_dag_of_htcondors_library_is_read_as_it_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import htcondor2
    from htcondor2 import dags

    def job(program: str, **more: str) -> htcondor2.Submit:
        return htcondor2.Submit({"executable": program, **more})

    written = dags.DAG(
        dagman_config={"DAGMAN_MAX_JOBS_IDLE": 5},
        dot_config=dags.DotConfig("graph.dot"),
        node_status_file=dags.NodeStatusFile("status"),
        jobstate_log="jobstate.log",
    )
    split = written.layer(
        name="split",
        submit_description=job("/bin/echo", arguments="$(part)"),
        vars=[{"part": "one"}, {"part": 'a "second" one'}],
        retries=2,
        priority=3,
        pre=dags.Script("pre.sh", ["a"]),
        abort=dags.DAGAbortCondition(node_exit_value=3, dag_return_value=7),
        category="big",
    )
    pairs = split.child_layer(
        name="pairs", submit_description=job("/bin/true"), vars=[{}, {}], edge=dags.OneToOne()
    )
    pairs.child_layer(name="gather", submit_description=job("/bin/true"), edge=dags.ManyToMany())
    written.final(name="last", submit_description=job("/bin/true"))
    file = dags.write_dag(written, tmp_path)
    monkeypatch.chdir(tmp_path)

    dag = Reading(base=tmp_path).read([Path(file).name])

    nodes = dag.nodes
    assert {name: sorted(node.children) for name, node in nodes.items()} == {
        "split:0": ["pairs:0"],
        "split:1": ["pairs:1"],
        "pairs:0": ["gather:0"],
        "pairs:1": ["gather:0"],
        "gather:0": [],
        "last": [],
    }
    second = nodes["split:1"]
    assert [variable.value for variable in second.variables] == ['a "second" one']
    assert (second.retries, second.priority, second.category) == (2, 3, "big")
    assert (second.abort_on, second.abort_return) == (3, 7)
    assert second.pre is not None
    assert (second.pre.program, second.pre.arguments) == ("pre.sh", ("a",))
    assert dag.final is nodes["last"]
    assert dag.dot is not None
    assert dag.status_file is not None
    assert (dag.dot.path, dag.status_file.path) == ("graph.dot", "status")
    assert (dag.jobstate_log, dag.config) == ("jobstate.log", "dagman.config")
