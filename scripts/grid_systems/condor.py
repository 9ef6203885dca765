"""HTCondor: a pool of eight slots on this machine, all of it run by an ordinary user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, Submitter

from .story import SMALL, WAITS, Story, eventually, found, order, refused

_SLOTS = 8
_CONFIG = """\
RELEASE_DIR = /usr
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
BIN = /usr/bin
SBIN = /usr/sbin
SHARE = /usr/share/condor
LOCAL_DIR = {folder}
LOG = {folder}/log
SPOOL = {folder}/spool
EXECUTE = {folder}/execute
LOCK = {folder}/lock
RUN = {folder}/run
SEC_TOKEN_DIRECTORY = {folder}/tokens
SEC_TOKEN_SYSTEM_DIRECTORY = {folder}/tokens
SEC_PASSWORD_DIRECTORY = {folder}/passwords
SEC_TOKEN_POOL_SIGNING_KEY_FILE = {folder}/passwords/POOL
use SECURITY : recommended_v9_0
use ROLE : CentralManager
use ROLE : Submit
use ROLE : Execute
CONDOR_HOST = 127.0.0.1
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
UID_DOMAIN = gridhost
FILESYSTEM_DOMAIN = gridhost
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, IDTOKENS
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *
NUM_CPUS = {slots}
MEMORY = 8000
SLOT_TYPE_1 = cpus=1,memory=100
SLOT_TYPE_1_PARTITIONABLE = False
NUM_SLOTS_TYPE_1 = {slots}
RUNBENCHMARKS = 0
UPDATE_INTERVAL = 5
NEGOTIATOR_INTERVAL = 5
NEGOTIATOR_CYCLE_DELAY = 2
NEGOTIATOR_MIN_INTERVAL = 2
SCHEDD_INTERVAL = 5
SCHEDD_MIN_INTERVAL = 1
PERIODIC_EXPR_INTERVAL = 5
MOUNT_UNDER_SCRATCH =
"""
_LOSSY = """\
#!/bin/sh
/usr/bin/condor_submit "$@" > /dev/null
echo 'ERROR: Failed to connect to queue manager' >&2
exit 1
"""


def prepare(user: str) -> None:
    """Nothing needs root."""


def tell(story: Story) -> None:
    """Start the pool and live through what happens there."""
    with story.claim("a pool of eight slots starts"):
        start()
    here = submitter()
    with story.claim("check is green, and nothing was submitted"):
        findings = here.check()
        assert all(finding.is_good for finding in findings), findings
        assert not _condor("condor_q", "-autoformat", "ClusterId").strip()
    with story.claim("check says what would never start or be understood"):
        _tell_of_bad_checks()
    overdue = order("overdue", WAITS, shape=PilotShape(memory_mb=50, walltime_seconds=1))
    here.submit(overdue)  # looked at again at the end
    with story.claim("pilots run, know themselves and show their owners; their code is told"):
        _tell_of_knowing(here)
    with story.claim("10 pilots on 7 free slots: 7 run, 3 wait, all leave when cancelled"):
        _tell_of_many(here)
    with story.claim("only pilots of our prefix are listed"):
        here.submit(order("one-a", WAITS))
        here.submit(order("other-a", WAITS))
        assert [pilot.tag for pilot in here.pilots("one-")] == ["one-a"]
        here.cancel([pilot.native_id for tag in ("one-", "other-") for pilot in here.pilots(tag)])
    with story.claim("a held pilot shows HTCondor's reason, and can be taken back"):
        _tell_of_held(here)
    with story.claim("a pilot that was evicted has ended, and is not started again"):
        _tell_of_eviction(here)
    with story.claim("a pilot whose starter was killed -9 has ended, and is not started again"):
        _tell_of_dead_starter(here)
    with story.claim("a pilot whose shadow was killed -9 has ended, and is not started again"):
        _tell_of_dead_shadow(here)
    with story.claim("a submission whose reply was lost is found by its tag"):
        _tell_of_lost_reply()
    with story.claim("all of it works through a shell line, as on a login node"):
        _tell_of_login_node()
    with story.claim("a queue that is away is an error, no refusal and no empty list"):
        _tell_of_absence(here)
    with story.claim("a refusal is lasting and in HTCondor's words"):
        bad = order("refused", WAITS, "request_memory = lots of it")
        refused(lambda: here.submit(bad), "RequestMemory = lots of it", is_lasting=True)
    with story.claim("a pilot that outlives its walltime is removed"):
        [pilot] = found(here, "overdue", PilotState.ENDED)
        assert "PeriodicRemove" in pilot.reason, pilot


def submitter(*through: str, directives: tuple[str, ...] = (), **environment: str) -> Submitter:
    """The submitter, with its folder in the user's home."""
    environment["CONDOR_CONFIG"] = str(Path("pool/condor_config").absolute())
    options = {"environment": environment, "through": list(through)}
    grid = Grid(name="pool", kind="htcondor", shape=SMALL, directives=directives, options=options)
    return KINDS["htcondor"](grid, Path("grid").absolute())


def start() -> None:
    """Start the pool in the user's home."""
    folder = Path("pool").absolute()
    for name in ("log", "spool", "execute", "lock", "run", "tokens", "passwords"):
        (folder / name).mkdir(parents=True, mode=0o700 if name[-1] == "s" else 0o755)
    (folder / "condor_config").write_text(_CONFIG.format(folder=folder, slots=_SLOTS))
    os.environ["CONDOR_CONFIG"] = str(folder / "condor_config")
    _condor("condor_master")
    eventually(_is_up, "the pool")


def _is_up() -> bool:
    # condor_q answers before the collector knows the queue, condor_submit does not.
    slots = _tried("condor_status", "-autoformat", "Name").split()
    queues = _tried("condor_status", "-schedd", "-autoformat", "Name").split()
    return len(slots) == _SLOTS and len(queues) == 1


def _condor(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def _tried(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def _tell_of_bad_checks() -> None:
    shape = PilotShape(memory_mb=50_000)
    large = KINDS["htcondor"](Grid(name="pool", kind="htcondor", shape=shape), Path("large"))
    said = [finding.text for finding in large.check() if not finding.is_good]
    assert said == ["none of 8 slots has 1 CPUs and 50000 MB"], said
    unreadable = submitter(directives=("requirements = )(",))
    said = [finding.text for finding in unreadable.check() if not finding.is_good]
    assert len(said) == 1, said
    assert "Parse error" in said[0], said


def _tell_of_knowing(here: Submitter) -> None:
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2'
    native_ids = here.submit(
        order("knows", f"{says}; echo x > left; exit 7", "hold = true", count=2)
    )
    shown = _condor("condor_q", "-autoformat", "GridBotOwners", "JobBatchName").splitlines()
    assert shown.count("alice+b_ob knows") == 2, shown
    _condor("condor_release", *native_ids)
    pilots = found(here, "knows", PilotState.ENDED)
    assert [(pilot.native_id, pilot.exit_code) for pilot in pilots] == [(i, 7) for i in native_ids]
    for index, native_id in enumerate(native_ids):
        assert here.tail(native_id, "knows") == f"knows {index} {native_id}\n"
    assert not list(Path("grid").rglob("left")), "what pilots left came back"


def _tell_of_many(here: Submitter) -> None:
    native_ids = here.submit(order("many", WAITS, count=10))

    def is_full() -> bool:
        states = [pilot.state for pilot in here.pilots("many")]
        return states.count(PilotState.RUNNING) == 7 and states.count(PilotState.QUEUED) == 3

    eventually(is_full, "7 that run")
    running = [pilot for pilot in here.pilots("many") if pilot.state is PilotState.RUNNING]
    eventually(lambda: here.tail(running[0].native_id, "many") == "waits\n", "its stderr")
    here.cancel([*native_ids, "99999.0"])
    found(here, "many", PilotState.ENDED)
    here.cancel(native_ids)  # gone already, which is no error


def _tell_of_held(here: Submitter) -> None:
    [native_id] = here.submit(order("held", WAITS))
    found(here, "held", PilotState.RUNNING)
    _condor("condor_hold", "-reason", "no licence", native_id)
    [pilot] = found(here, "held", PilotState.HELD)
    assert pilot.reason == "no licence (by user pilot) (code 1)", pilot
    here.cancel([native_id])
    found(here, "held", PilotState.ENDED)


def _tell_of_eviction(here: Submitter) -> None:
    lives = Path("lives-evicted").absolute()
    [native_id] = here.submit(order("evicted", f"echo x >> {lives}; {WAITS}"))
    found(here, "evicted", PilotState.RUNNING)
    eventually(lives.exists, "its life")
    _condor("condor_vacate_job", "-fast", native_id)
    _ended_once(here, "evicted", lives)


def _tell_of_dead_starter(here: Submitter) -> None:
    lives = Path("lives-starter").absolute()
    here.submit(order("starter", f"echo $PPID >> {lives}; {WAITS}"))
    found(here, "starter", PilotState.RUNNING)
    [starter] = eventually(lambda: _lines(lives), "its life")
    os.kill(int(starter), 9)
    _ended_once(here, "starter", lives)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _tell_of_dead_shadow(here: Submitter) -> None:
    lives = Path("lives-shadow").absolute()
    here.submit(order("shadow", f"echo x >> {lives}; {WAITS}"))
    found(here, "shadow", PilotState.RUNNING)
    eventually(lives.exists, "its life")
    [spared] = here.pilots("overdue")
    # A shadow goes on with another job when its first has ended, so its arguments tell little.
    shadows = [int(pid) for pid, words in _processes() if words[0] == "condor_shadow"]
    mine = [pid for pid, words in _processes() if spared.native_id in words]
    for pid in set(shadows) - {int(pid) for pid in mine}:
        os.kill(pid, 9)
    _ended_once(here, "shadow", lives)


def _processes() -> Iterator[tuple[str, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError):
            yield entry.parent.name, entry.read_text().split("\0")


def _ended_once(here: Submitter, tag: str, lives: Path) -> None:
    [pilot] = found(here, tag, PilotState.ENDED)
    native_id = pilot.native_id
    eventually(
        lambda: not _condor("condor_q", native_id, "-af", "JobStatus").strip(), "its removal"
    )
    assert len(lives.read_text().split()) == 1, "it was started again"


def _tell_of_lost_reply() -> None:
    lossy = Path("bin/condor_submit").absolute()
    lossy.parent.mkdir()
    lossy.write_text(_LOSSY)
    lossy.chmod(0o755)
    unlucky = submitter(PATH=f"{lossy.parent}:{os.environ['PATH']}")
    lost = order("lost", WAITS, count=3)
    refused(lambda: unlucky.submit(lost), "Failed to connect", is_lasting=False)
    pilots = found(unlucky, "lost", PilotState.RUNNING)
    assert [pilot.index for pilot in pilots] == [0, 1, 2], pilots
    unlucky.cancel([pilot.native_id for pilot in pilots])


def _tell_of_login_node() -> None:
    there = submitter("sh", "-c")
    findings = there.check()
    assert all(finding.is_good for finding in findings), findings
    [native_id] = there.submit(order("there", f'echo "it\'s there" >&2; {WAITS}'))
    found(there, "there", PilotState.RUNNING)
    eventually(lambda: there.tail(native_id, "there") == "it's there\nwaits\n", "its stderr")
    there.cancel([native_id])
    found(there, "there", PilotState.ENDED)


def _tell_of_absence(here: Submitter) -> None:
    [native_id] = here.submit(order("lonely", WAITS))
    found(here, "lonely", PilotState.RUNNING)
    _condor("condor_off", "-fast", "-schedd")
    eventually(lambda: subprocess.run(["condor_q"], capture_output=True).returncode, "its end")
    for call in (
        lambda: here.pilots("lonely"),
        lambda: here.cancel([native_id]),
        lambda: here.submit(order("late", WAITS)),
    ):
        refused(call, "", is_lasting=False)
    [finding] = here.check()
    assert not finding.is_good, finding
    _condor("condor_on", "-schedd")
    eventually(_is_up, "the queue")
    assert [pilot.native_id for pilot in here.pilots("lonely")] == [native_id]
    here.cancel([native_id])
