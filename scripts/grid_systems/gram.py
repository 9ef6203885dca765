"""GRAM5: a gatekeeper with its own certification authority, whose jobs are forked processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gridbot_overlay.decide.model import Grid, PilotOrder, PilotState, Sighting
from gridbot_overlay.submitters import gram_rsl
from gridbot_overlay.submitters.gram import Gram

from .story import SMALL, WAITS, Story, eventually, found, order, refused

_SITE = Path("/tmp/site")
PORT, _CLOSED_PORT = 12119, 12118
MANAGERS_PORTS = 12120, 12139  # the first and the last
CERTIFICATES = _SITE / "certificates"
_SHORT_SECONDS = 4  # within which some requests must be committed
_POLICY = """\
access_id_CA X509 '/O=Test/CN=Authority'
pos_rights globus CA:sign
cond_subjects globus '"/O=Test/*"'
"""
_MANAGER = "/usr/sbin/globus-job-manager"


def prepare(user: str) -> None:
    """Make certificates, and start the gatekeeper, which becomes whoever it serves."""
    for name in ("certificates", "services", "log"):
        (_SITE / name).mkdir(parents=True)
    (_SITE / "log").chmod(0o1777)
    _make_authority()
    host = "subjectAltName=DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth"
    _certify("host", "/O=Test/CN=localhost", host)
    _certify("user", "/O=Test/CN=Pilot", "extendedKeyUsage=clientAuth")
    _hand_over(user)
    _start_gatekeeper(user)


def tell(story: Story) -> None:
    """Live through what happens to jobs behind the gatekeeper."""
    here = submitter()
    with story.claim("check says that a proxy is missing"):
        said = {finding.what: finding.is_good for finding in here.check()}
        assert said == {"proxy": False, "gatekeeper": True, "logs": True}, said
    start()
    with story.claim("check is green, by a test that the gatekeeper takes"):
        findings = here.check()
        assert all(finding.is_good for finding in findings), findings
    with story.claim("check tells of a service that is not there"):
        [_, finding] = submitter("jobmanager-none").check()[:2]
        assert not finding.is_good, finding
        assert "failed to find the requested service" in finding.text, finding
    with story.claim("pilots run, and know themselves; nothing secret is left to their jobs"):
        _tell_of_knowing(here)
    with story.claim("a cancelled pilot is told from one that is done, also a second time"):
        _tell_of_cancelling(here)
    with story.claim("killed -9 before the contact is written down: it never runs"):
        _tell_of_unwritten(here)
    with story.claim("killed -9 between writing down and commit: found, committed, runs once"):
        _tell_of_uncommitted(here)
    with story.claim("the same, but found too late: it never runs, and this is told"):
        _tell_of_expired(here)
    with story.claim("it ends and nobody looks for long: it has ended, and is not started again"):
        _tell_of_neglect(here)
    with story.claim("its job manager killed -9: the pilot runs on, once, and its end is seen"):
        _tell_of_lost_manager(here)
    with story.claim("its job manager killed -9: it can still be cancelled"):
        _tell_of_orphan(here)
    with story.claim("a gatekeeper that is away is an error, no refusal and no empty list"):
        _tell_of_absence(here)
    with story.claim("a refusal is lasting and in GRAM's words"):
        bad = order("refused", WAITS, "(nonsense=1)")
        refused(lambda: here.submit(bad), "RSL parameters", is_lasting=True)
        assert here.pilots("refused") == []


def start() -> None:
    """Make a proxy certificate, which opens the gatekeeper to the user."""
    os.environ["X509_CERT_DIR"] = str(_SITE / "certificates")
    _call("grid-proxy-init", "-q", "-bits", "2048", "-valid", "12:00")


def submitter(service: str = "jobmanager-fork", port: int = PORT) -> Gram:
    """The submitter, with its folder in the user's home."""
    options: dict[str, Any] = {
        "contact": f"localhost:{port}/{service}",
        "environment": {
            "X509_CERT_DIR": str(_SITE / "certificates"),
            "GLOBUS_HOSTNAME": "localhost",
        },
        "logs": str(Path("logs").absolute()),
    }
    grid = Grid(name="site", kind="gram", shape=SMALL, options=options)
    return Gram(grid, Path("grid").absolute())


# ----------------------------------------------------------------------------------- the site


def _make_authority() -> None:
    key, certificate = _SITE / "authority.key", _SITE / "authority.pem"
    _call(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"),
        *("-subj", "/O=Test/CN=Authority", "-keyout", str(key), "-out", str(certificate)),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    for kind in ("-subject_hash", "-subject_hash_old"):
        name = _call("openssl", "x509", "-in", str(certificate), "-noout", kind).strip()
        (_SITE / "certificates" / f"{name}.0").write_bytes(certificate.read_bytes())
        (_SITE / "certificates" / f"{name}.signing_policy").write_text(_POLICY)


def _certify(name: str, subject: str, extensions: str) -> None:
    key, asked, made = (str(_SITE / f"{name}.{end}") for end in ("key", "csr", "pem"))
    (_SITE / f"{name}.ext").write_text(f"basicConstraints=CA:false\n{extensions}\n")
    _call(
        *("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject),
        *("-keyout", key, "-out", asked),
    )
    _call(
        *("openssl", "x509", "-req", "-in", asked, "-out", made, "-days", "30"),
        *("-CA", str(_SITE / "authority.pem"), "-CAkey", str(_SITE / "authority.key")),
        *("-CAcreateserial", "-extfile", str(_SITE / f"{name}.ext")),
    )


def _hand_over(user: str) -> None:
    """Give the user the key, and an empty home with room for it."""
    folder = Path(f"~{user}/.globus").expanduser()
    _call("runuser", "-u", user, "--", "mkdir", "-p", str(folder))
    for source, name, mode in (
        ("user.key", "userkey.pem", "600"),
        ("user.pem", "usercert.pem", "644"),
    ):
        _call("install", "-o", user, "-m", mode, str(_SITE / source), str(folder / name))


def _start_gatekeeper(user: str) -> None:
    (_SITE / "gridmap").write_text(f'"/O=Test/CN=Pilot" {user}\n')
    config = f"""\
        -globus-toolkit-version 6.2
        -log-pattern {_SITE}/log/$(LOGNAME).log
        -x509-cert-dir {_SITE}/certificates
        -globus-hostname localhost
        -globus-tcp-port-range {MANAGERS_PORTS[0]},{MANAGERS_PORTS[1]}
    """
    (_SITE / "manager.conf").write_text(textwrap.dedent(config))
    service = f"stderr_log,local_cred - {_MANAGER} globus-job-manager"
    service += f" -conf {_SITE}/manager.conf -type fork\n"
    (_SITE / "services" / "jobmanager-fork").write_text(service)
    os.environ["GLOBUS_HOSTNAME"] = "localhost"
    _call(
        *("globus-gatekeeper", "-p", str(PORT), "-l", str(_SITE / "log" / "gatekeeper.log")),
        *("-grid_services", str(_SITE / "services"), "-gridmap", str(_SITE / "gridmap")),
        *("-x509_cert_dir", str(_SITE / "certificates")),
        *("-x509_user_cert", str(_SITE / "host.pem"), "-x509_user_key", str(_SITE / "host.key")),
    )
    eventually(_is_up, "the gatekeeper")


def _is_up() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


def _call(*command: str) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def _kill_managers() -> None:
    """End this user's job managers as a crash does; their jobs live on."""
    mine = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    managers = [entry for entry in mine if _program(entry) == "globus-job-manager"]
    assert managers, "there is no job manager"
    for entry in managers:
        os.kill(int(entry.name), signal.SIGKILL)
    eventually(lambda: not any(_program(entry) for entry in managers), "their end")


def _program(entry: Path) -> str:
    try:
        line = (entry / "cmdline").read_bytes()
        return "" if entry.stat().st_uid != os.getuid() else line.split(b"\0")[0].decode()
    except FileNotFoundError:
        return ""


# ---------------------------------------------------------------------------------- the claims


def _tell_of_knowing(here: Gram) -> None:
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID $GRIDBOT_OWNERS" >&2'
    hides = 'echo "$GRIDBOT_SCRIPT$X509_USER_PROXY" >&2'
    native_ids = here.submit(order("knows", f"{says}\n{hides}\ncat <<X >&2\nhere ü\nX", count=3))
    assert native_ids == ["knows.0", "knows.1", "knows.2"]
    found(here, "knows", PilotState.ENDED)
    for index, native_id in enumerate(native_ids):
        said = here.tail(native_id, "knows")
        assert said == f"knows {index} {native_id} alice+b_ob\n\nhere ü\n", said


def _tell_of_cancelling(here: Gram) -> None:
    here.submit(order("done", "exit 0"))
    [native_id] = here.submit(order("taken", WAITS))
    found(here, "taken", PilotState.RUNNING)
    here.cancel([native_id, "unknown.0"])
    for _ in range(2):
        assert [pilot.reason for pilot in found(here, "taken", PilotState.ENDED)] == ["cancelled"]
        assert [pilot.reason for pilot in found(here, "done", PilotState.ENDED)] == [""]
    here.cancel([native_id])  # gone already, which is no error


def _tell_of_unwritten(here: Gram) -> None:
    lives = _submit_and_die(here, "unwritten", lambda: setattr(here._journal, "write", _die))
    assert here.pilots("unwritten") == []
    _let_requests_expire()
    assert not lives.exists(), "it ran"


def _tell_of_uncommitted(here: Gram) -> None:
    lives = _submit_and_die(here, "uncommitted", lambda: setattr(here, "_commit", _die), seconds=60)
    assert not lives.exists(), "it ran"
    pilots = found(here, "uncommitted", PilotState.ENDED)
    assert [pilot.index for pilot in pilots] == [0, 1], pilots
    assert sorted(lives.read_text().split()) == ["0", "1"]


def _tell_of_expired(here: Gram) -> None:
    lives = _submit_and_die(here, "expired", lambda: setattr(here, "_commit", _die))
    _let_requests_expire()
    pilots = found(here, "expired", PilotState.ENDED)
    assert all("committed" in pilot.reason for pilot in pilots), pilots
    assert not lives.exists(), "it ran"


def _tell_of_neglect(here: Gram) -> None:
    usual, gram_rsl.COMMIT_SECONDS = gram_rsl.COMMIT_SECONDS, _SHORT_SECONDS
    lives = Path("lives-neglected").absolute()
    here.submit(order("neglected", f"echo x >> {lives}"))
    gram_rsl.COMMIT_SECONDS = usual
    eventually(lives.exists, "its life")
    _let_requests_expire()
    found(here, "neglected", PilotState.ENDED)
    assert _states(here.pilots("neglected")) == [PilotState.ENDED]
    assert lives.read_text() == "x\n"


def _tell_of_lost_manager(here: Gram) -> None:
    gate, lives = Path("gate").absolute(), Path("lives-managed").absolute()
    gate.touch()
    waits = f"while test -e {gate}; do sleep 0.1; done"
    here.submit(order("managed", f"echo x >> {lives}; {waits}", count=2))
    found(here, "managed", PilotState.RUNNING)
    for _ in range(2):
        _kill_managers()
        assert _states(here.pilots("managed")) == [PilotState.RUNNING] * 2
    gate.unlink()
    assert [pilot.reason for pilot in found(here, "managed", PilotState.ENDED)] == ["", ""]
    assert lives.read_text() == "x\nx\n"


def _tell_of_orphan(here: Gram) -> None:
    process = Path("orphan").absolute()
    [native_id] = here.submit(order("orphan", f"echo $$ > {process}; {WAITS}"))
    found(here, "orphan", PilotState.RUNNING)
    pid = eventually(lambda: process.exists() and process.read_text().strip(), "its process")
    _kill_managers()
    here.cancel([native_id])
    assert [pilot.reason for pilot in found(here, "orphan", PilotState.ENDED)] == ["cancelled"]
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the end of its process")


def _tell_of_absence(here: Gram) -> None:
    [native_id] = here.submit(order("lonely", WAITS))
    found(here, "lonely", PilotState.RUNNING)
    _kill_managers()
    cut_off = submitter(port=_CLOSED_PORT)  # the same folder, but nobody answers
    for call in (
        lambda: cut_off.pilots("lonely"),
        lambda: cut_off.cancel([native_id]),
        lambda: cut_off.submit(order("late", WAITS)),
    ):
        refused(call, "the connection to the server failed", is_lasting=False)
    assert here.pilots("late") == []
    here.cancel([native_id])
    found(here, "lonely", PilotState.ENDED)


def _submit_and_die(
    here: Gram, tag: str, wound: Callable[[], None], seconds: int = _SHORT_SECONDS
) -> Path:
    """Submit two pilots from a process that is killed on the way; give what they would write."""
    lives = Path(f"lives-{tag}").absolute()
    made: PilotOrder = order(tag, f"echo $GRIDBOT_PILOT_INDEX >> {lives}", count=2)
    child = os.fork()
    if child == 0:
        gram_rsl.COMMIT_SECONDS = seconds
        wound()
        here.submit(made)
        os._exit(1)  # it should not have lived so long
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
    return lives


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _let_requests_expire() -> None:
    """Wait until the job manager has given up what nobody committed; only time tells."""
    time.sleep(3 * _SHORT_SECONDS)


def _states(pilots: list[Sighting]) -> list[PilotState]:
    return [pilot.state for pilot in pilots]
