import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests import factories
from tests.http.conftest import Person, Site
from tests.http.loopback import serve

GENERATED = "gridbot_generated"
# Streams and files come as bytes; nothing is formatted, for nobody reads it.
CONFIG = {
    "content_type_overrides": {
        "application/jsonl": "application/octet-stream",
        "application/x-tar": "application/octet-stream",
    },
    "post_hooks": [],
}


@pytest.fixture
def generated(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a client that was made from the description alone."""
    document = site.app.test_client().get("/api/v1/openapi.json").get_data()
    (tmp_path / "openapi.json").write_bytes(document)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    subprocess.run(
        [
            sys.executable, "-W", "error", "-m", "openapi_python_client", "generate",
            "--path", "openapi.json", "--config", "config.json", "--meta", "none",
            "--output-path", GENERATED, "--fail-on-warning",
        ],
        cwd=tmp_path,
        check=True,
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    return GENERATED


def test_a_client_made_from_the_description_submits_looks_cancels_and_is_refused(
    generated: str, site: Site, alice: Person
) -> None:
    def operation(name: str, tag: str = "bots") -> Any:
        return import_module(f"{generated}.api.{tag}.{name}").sync

    models = import_module(f"{generated}.models")
    body = models.SubmissionRequest.from_dict(factories.submission())
    with (
        serve(site.app) as url,
        import_module(generated).AuthenticatedClient(url, alice.token) as client,
    ):
        made = operation("submit_bot")(client=client, body=body)
        shown = operation("show_bot")(made.id, client=client)
        assert (shown.name, shown.jobs_total, shown.state) == ("scan", made.jobs_total, "running")
        assert operation("cancel_bot")(made.id, client=client).state == "cancelled"
        (listed,) = operation("list_bots")(client=client, limit=10).bots
        assert (listed.id, listed.created_at) == (made.id, shown.created_at)
        refused = operation("show_bot")(made.id + 1, client=client)
        assert isinstance(refused, models.ErrorAnswer)
        assert (refused.error, refused.retry) == ("NotFound", False)
        assert operation("show_health", "health")(client=client).status == "degraded"
