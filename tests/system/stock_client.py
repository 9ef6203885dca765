"""Debian's own BOINC client, unmodified, in a data directory of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.process_tree import kill_tree
from tests.system.deployment import Deployment, eventually, free_port

_OPTIONS = """<cc_config>
<log_flags>
<sched_op_debug>1</sched_op_debug>
<unparsed_xml>1</unparsed_xml>
</log_flags>
<options>
<ncpus>{cpus}</ncpus>
<report_results_immediately>1</report_results_immediately>
<dont_contact_ref_site>1</dont_contact_ref_site>
<max_file_xfers_per_project>8</max_file_xfers_per_project>
<start_delay>0</start_delay>
</options>
</cc_config>
"""
_PREFERENCES = """<global_preferences>
<run_if_user_active>1</run_if_user_active>
<run_on_batteries>1</run_on_batteries>
<suspend_cpu_usage>0</suspend_cpu_usage>
<max_ncpus_pct>100</max_ncpus_pct>
<disk_min_free_gb>0.1</disk_min_free_gb>
<work_buf_min_days>0.001</work_buf_min_days>
<work_buf_additional_days>0.001</work_buf_additional_days>
</global_preferences>
"""
# No benchmarks, which take half a minute, and no waiting for other projects' sake.
_FLAGS = (
    *("--allow_multiple_clients", "--no_gpus", "--skip_cpu_benchmarks"),
    *("--insecure", "--sched_retry_delay_min", "3", "--sched_retry_delay_max", "6"),
    *("--pers_retry_delay_min", "3", "--pers_retry_delay_max", "6"),
)
# On the build machine what needs it fails where it is not.
needs_boinc = pytest.mark.skipif(
    shutil.which("boinc") is None and "CI" not in os.environ,
    reason="no BOINC client here: apt-get install boinc-client",
)


@dataclass
class StockClient:
    """One that runs, and what it wrote."""

    folder: Path
    port: int
    url: str
    fetches_news: bool
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self, *more: str) -> None:
        """Let it run, perhaps anew in its folder."""
        where = ("--dir", str(self.folder), "--gui_rpc_port", str(self.port))
        news = () if self.fetches_news else ("--no_info_fetch",)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["boinc", *where, *_FLAGS, *news, *more],
                env={**os.environ, "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Let it crash, with all that it runs."""
        if self._process is not None:
            kill_tree(self._process)

    @property
    def log(self) -> str:
        """All that it said."""
        return (self.folder / "log").read_text(errors="replace")

    def command(self, *arguments: str) -> str:
        """Let boinccmd tell the client something; empty if it does not do it."""
        try:  # the client writes it anew when it starts
            password = (self.folder / "gui_rpc_auth.cfg").read_text().strip()
        except FileNotFoundError:
            return ""
        where = ("--host", f"127.0.0.1:{self.port}", "--passwd", password)
        done = subprocess.run(
            ["boinccmd", *where, *arguments], capture_output=True, text=True, timeout=60
        )
        return done.stdout if done.returncode == 0 else ""

    @contextmanager
    def manager(self) -> Iterator[Callable[[str], str]]:
        """What BOINC's manager can ask that boinccmd cannot: a request gets its reply."""
        password = (self.folder / "gui_rpc_auth.cfg").read_text().strip()
        with socket.create_connection(("127.0.0.1", self.port), 60) as link:
            replies = link.makefile("rb")

            def ask(body: str) -> str:
                text = f"<boinc_gui_rpc_request>\n{body}\n</boinc_gui_rpc_request>\n\003"
                link.sendall(text.encode())
                reply = bytearray()
                while (byte := replies.read(1)) not in (b"\003", b""):
                    reply += byte
                return reply.decode()

            nonce = re.search("<nonce>(.*)</nonce>", ask("<auth1/>"))
            assert nonce
            digest = hashlib.md5((nonce[1] + password).encode()).hexdigest()
            assert "<authorized/>" in ask(f"<auth2>\n<nonce_hash>{digest}</nonce_hash>\n</auth2>")
            yield ask

    def tasks(self, bot: int | None = None) -> dict[str, bool]:
        """What it holds and has not reported, perhaps of one BOT, and whether it runs now."""
        told = self.command("--get_tasks")
        assert "Tasks" in told
        names = re.findall(r"^ +name: (.*)", told, re.MULTILINE)
        states = re.findall(r"^ +active_task_state: (.*)", told, re.MULTILINE)
        start = "" if bot is None else f"gb_{bot}_"
        return {
            name: state == "EXECUTING"
            for name, state in zip(names, states, strict=True)
            if name.startswith(start)
        }

    def fraction_done(self, bot: int) -> float:
        """How far the only job of a BOT is, by the client's word; 0 without one."""
        told = self.command("--get_tasks").partition(f"name: gb_{bot}_")[2]
        found = re.search(r"^ +fraction done: ([\d.]+)", told, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def listens(self) -> None:
        """Wait until it takes commands."""
        eventually((self.folder / "gui_rpc_auth.cfg").exists, what="the client's password")
        eventually(lambda: self.command("--get_project_status"), what="the client's port")

    def attach(self, key: str) -> None:
        """Attach it to the server."""
        self.command("--project_attach", self.url, key)

    def update(self) -> None:
        """Let it ask the server now."""
        self.listens()
        self.command("--project", self.url, "update")


@contextmanager
def stock_client(
    server: Deployment, key: str | None = None, cpus: int = 8, fetches_news: bool = False
) -> Iterator[StockClient]:
    """Let a client attach to the server with a key, and end it with all that it runs."""
    port = free_port()
    folder, url = server.folder / f"boinc-{port}", f"{server.settings.url}/boinc/"
    made = StockClient(folder, port, url, fetches_news)
    made.folder.mkdir()
    (made.folder / "cc_config.xml").write_text(_OPTIONS.format(cpus=cpus))
    (made.folder / "global_prefs_override.xml").write_text(_PREFERENCES)
    made.start(*(("--attach_project", made.url, key) if key else ()))
    try:
        yield made
    finally:
        made.kill()
