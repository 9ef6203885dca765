"""From a node to the jobs of its submit description."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus
from gridbot.dag.submit.description import SubmitSetting, read_jobs
from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import SubmitJob, refuse_impossible


def jobs_of(
    state: NodeState, engine: DagEngine, folder: Path, environment: Mapping[str, str],
    cluster: int, dag_id: int,
) -> list[SubmitJob]:  # fmt: skip
    """The jobs of a node, as its description stands now.  Raises SubmitError."""
    node = state.node
    setting = SubmitSetting(
        directory=folder,
        environment=environment,
        before={
            "DAG_STATUS": str(int(engine.dag_status)),
            "FAILED_COUNT": str(engine.table.counts[NodeStatus.ERROR]),
            "DAGManJobId": str(dag_id),
            "DAG_PARENT_NAMES": ",".join((*node.parents, *node.weak_parents)),
            "JOB": state.name,
            "RETRY": str(state.retries),
            **{item.name: item.value for item in node.variables if not item.appended},
        },
        after={item.name: item.value for item in node.variables if item.appended},
        cluster=cluster,
        needs_queue=node.text is None,
    )
    jobs = read_jobs(_text_of(state, folder), setting)
    for job in jobs:
        refuse_impossible(job)
    return jobs


def _text_of(state: NodeState, folder: Path) -> str:
    node = state.node
    if node.text is not None:
        return node.text
    try:
        return (folder / node.submit).read_text(encoding="utf-8")
    except OSError as error:
        raise SubmitError(f"submit file {node.submit}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SubmitError(f"submit file {node.submit}: is no text in UTF-8") from None
