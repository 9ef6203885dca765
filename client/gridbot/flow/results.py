"""What jobs of steps returned: as the journal has it, and as the user gets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gridbot.api.errors import GridbotError
from gridbot.api.results import OutputFile, Result
from gridbot.api.session import Session
from gridbot.dag.engine import events
from gridbot.dag.run.lot import JobAtServer, NodeLot
from gridbot.flow.steps import Step
from gridbot_client.protocol.messages import INLINE_OUTPUT_BYTES, Scalar
from gridbot_client.terminal import printable


class StepResults:
    """Makes results of events; outputs that came just now have their contents."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._outputs: dict[tuple[str, int], Mapping[str, OutputFile]] = {}  # that came just now

    def keep(self, _: NodeLot, result: Result, job: JobAtServer) -> Mapping[str, Any]:
        """What the journal knows of a job's result; called by threads."""
        self._outputs[job.node, job.process] = result.outputs
        return {
            "state": result.state,
            "reason": result.reason,
            "files": {name: [file.sha256, file.size] for name, file in result.outputs.items()},
        }

    def result(
        self,
        event: events.JobEnded | events.JobRemoved,
        row: Mapping[str, Scalar],
        place: tuple[int, int],
    ) -> Result:
        """The result of a job, by its end; `row` are its values, `place` its BOT and number."""
        kept = event.outputs if isinstance(event, events.JobEnded) else {}
        bot, seq = place
        outputs = self._outputs.pop((event.node, event.process), None)
        if outputs is None:
            outputs = {
                name: OutputFile(
                    name, sha256, size, f"/bots/{bot}/outputs/{seq}/{quote(name)}",
                    self._session.connection, came_inline=size <= INLINE_OUTPUT_BYTES,
                )
                for name, (sha256, size) in kept.get("files", {}).items()
            }  # fmt: skip
        removed = event.reason if isinstance(event, events.JobRemoved) else ""
        return Result(
            n=event.seen,
            seq=event.process,
            args=row,
            state=kept.get("state", "failed"),
            replica=None,
            exit_code=event.code if isinstance(event, events.JobEnded) else None,
            reason=removed or kept.get("reason", ""),
            host="", cpu_seconds=0.0, wall_seconds=0.0,
            outputs=outputs,
            bot=bot,
        )  # fmt: skip

    def why(self, step: Step, number: int, place: tuple[int, int]) -> str:
        """Why a step has failed, by a job that did, for a terminal: hosts have a say in it."""
        result = step.failed[number]
        ended = f"exit code {result.exit_code}" if result.exit_code is not None else result.reason
        # A job that never reached its end has no number there any more.
        said = self._said(*place) if result.n else ""
        others = f", and {len(step.failed) - 1} more" if len(step.failed) > 1 else ""
        return printable(f"job {number} failed: {ended}{': ' if said else ''}{said}{others}")

    def _said(self, bot: int, seq: int) -> str:
        """The last line of what a job printed as errors."""
        try:
            logs = [*self._session.bot(bot).logs(seq)]
        except GridbotError:  # they are gone
            return ""
        lines = [line for log in logs[-1:] for line in str(log.get("stderr") or "").splitlines()]
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
