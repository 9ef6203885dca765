"""EC2: pilots as instances of an emulator, whose scripts are run as processes of this machine."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.orders import make_order
from tests.system.deployment import Deployment, eventually
from tests.system.ec2_cloud import Ec2Cloud, ec2_cloud, machines
from tests.system.overlays import Overlay, overlay

from gridbot_overlay.decide.model import Grid, PilotShape, PilotState
from gridbot_overlay.submitters.ec2 import Ec2

TAG = "gbaaaaaan1"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Cloud]:
    with ec2_cloud(tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.fixture
def cloud(emulator: Ec2Cloud, monkeypatch: pytest.MonkeyPatch) -> Ec2Cloud:
    emulator.empty()
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    return emulator


def submitter(cloud: Ec2Cloud, **fields: object) -> Ec2:
    """One that knows nothing of what was submitted, as after a start."""
    made = Grid(**{"name": "cloud", "kind": "ec2", "options": cloud.options, **fields})  # type: ignore[arg-type]
    return Ec2(made, Path(mkdtemp(dir=cloud.folder)))


def add(constructor: Overlay, cloud: Ec2Cloud, *more: str) -> None:
    """Configure the cloud as a grid; a pilot costs at most 1.00."""
    constructor.server.env |= cloud.environment
    given = [word for pair in cloud.options.items() for word in ("--option", "=".join(pair))]
    constructor.add("ec2", "cloud", *given, "--walltime", "10m", "--price", "6", *more)


def test_a_bot_runs_on_instances_which_end_with_their_pilots(
    running: Deployment, cloud: Ec2Cloud
) -> None:
    with machines(cloud) as there, overlay(running, "ec2-bot") as constructor:
        add(constructor, cloud)
        bot = running.submit("--range", "0:3", "--", "echo", "{}")
        constructor.start()
        running.wait(bot)
        constructor.wait_left()
        pilots = constructor.pilots("cloud")
        found = cloud.instances()
        assert {seen["state"] for seen in found.values()} == {"terminated"}
        assert {seen["gridbot:tag"] for seen in found.values()} == {pilot.tag for pilot in pilots}
        cancelled = {pilot.native_id for pilot in pilots if pilot.cancelled}
        finished = found.keys() - cancelled  # others may be terminated at any moment
        assert finished
        for instance in finished:
            calls = there.calls(instance)
            assert calls[:2] == [
                "shutdown -P +15",
                "ip rule add to 169.254.169.254 pref 1 protocol kernel prohibit",
            ]
            assert calls[-1] == "shutdown -P now"
    assert constructor.status("cloud")["spent"] > 0


def test_a_budget_ends_the_starting_of_instances(running: Deployment, cloud: Ec2Cloud) -> None:
    with machines(cloud), overlay(running, "ec2-budget") as constructor:
        add(constructor, cloud, "--money-budget", "1.5")
        gate = running.gate()
        bot = running.submit("--range", "0:8", "--", *gate.command())
        constructor.start()
        eventually(lambda: "another pilot may cost 1.00" in str(constructor.status("cloud")))
        assert len(cloud.instances()) == 1
        gate.open()
        running.wait(bot)


def test_an_instance_that_nobody_knows_is_terminated(running: Deployment, cloud: Ec2Cloud) -> None:
    with overlay(running, "ec2-orphan") as constructor:
        add(constructor, cloud)
        [orphan] = submitter(cloud).submit(make_order(f"{constructor.prefix}zz"))
        [other] = submitter(cloud).submit(make_order("gbzzzzzznzz"))
        constructor.start()
        eventually(lambda: cloud.instances()[orphan]["state"] == "terminated")
        assert cloud.instances()[other]["state"] == "running"


def test_pilots_are_found_by_their_tags_and_end_by_a_cancel(cloud: Ec2Cloud) -> None:
    ids = submitter(cloud).submit(make_order(TAG, count=3))
    submitter(cloud).submit(make_order("gbbbbbbbn1"))
    listed = sorted(submitter(cloud).pilots("gbaaaaaa"), key=lambda one: one.index)
    assert [(one.tag, one.index, one.native_id) for one in listed] == [
        (TAG, index, native_id) for index, native_id in enumerate(ids)
    ]
    assert {one.state for one in listed} <= {PilotState.QUEUED, PilotState.RUNNING}
    submitter(cloud).cancel([ids[0], "i-0123456789abcdef0", ids[1]])
    states = {one.index: one.state for one in submitter(cloud).pilots(TAG)}
    assert states[0] == states[1] == PilotState.ENDED != states[2]
    submitter(cloud).cancel(ids)
    assert submitter(cloud).tail(ids[0], TAG) == ""  # the emulator's console shows another text


def test_check_looks_at_rights_size_and_price_and_starts_nothing(cloud: Ec2Cloud) -> None:
    good = submitter(cloud, price=0.1, shape=PilotShape(cpus=2, memory_mb=7000)).check()
    assert [(one.what, one.is_good) for one in good] == [
        ("price", True),
        ("EC2", True),
        ("type", True),
        ("instance", True),
    ]
    assert not cloud.instances()
    large = submitter(cloud, shape=PilotShape(cpus=4, memory_mb=7000)).check()
    assert [(one.what, one.text) for one in large if not one.is_good] == [
        (
            "type",
            "t3.large has 2 cores, 8192 MB and 0 GPUs; a pilot is said to have 4, 7000 and 0",
        )
    ]


def test_check_shows_the_name_of_a_refusal_and_no_secret(
    running: Deployment, cloud: Ec2Cloud
) -> None:
    with overlay(running, "ec2-check") as constructor:
        add(constructor, cloud)
        running.env["AWS_SECRET_ACCESS_KEY"] = "a wrong secret"
        where = ("cloud", "--data", str(constructor.folder))
        said = running.run("overlay", "check", *where, code=1)
        kept = (constructor.folder / "overlay.toml").read_text()
    assert "BAD  cloud: EC2: AuthFailure: " in said
    for secret in ("a wrong secret", cloud.keys.secret_key):
        assert secret not in said + kept
