"""The pages of the console, by name."""

from __future__ import annotations

from tests.console.stage import Stage


def pages(stage: Stage) -> dict[str, str]:
    """Every kind of page that an operator sees."""
    return {
        "home": "/",
        "bot": f"/bots/{stage.busy}",
        "bot-held": f"/bots/{stage.held}",
        "bot-done": f"/bots/{stage.done}",
        "policy": f"/bots/{stage.busy}/policy",
        "job-done": f"/bots/{stage.busy}/jobs/3",
        "job-failed": f"/bots/{stage.busy}/jobs/41",
        "job-running": f"/bots/{stage.busy}/jobs/46",
        "workflow": f"/workflows/{stage.workflow}",
        "workflow-large": f"/workflows/{stage.large}",
        "machines": "/machines",
        "certificate": "/machines/certificate",
        "notices": "/notices",
        "operations": "/operations",
        "overlay": "/overlay",
        "project": "/project",
    }
