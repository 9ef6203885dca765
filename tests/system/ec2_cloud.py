"""A cloud for tests: moto's EC2, as a process on this machine, and processes as its machines.

The emulator keeps records of instances and checks signatures; it runs nothing.  So what an
instance's user data says is run here, by a shell with programs that do not touch this machine.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
import requests
from tests.system.deployment import eventually, free_port

from gridbot_client.aws import AwsCredentials, RequestSigner

REGION, IMAGE = "us-east-1", "ami-03cf127a"  # one of those that the emulator knows
TYPE = "t3.large"  # has 2 cores and 8192 MB
FAKE = Path(__file__).parent.parent / "fakes" / "bin" / "instance_program"
_FAKED = ("shutdown", "ip", "useradd", "chown", "runuser")
_POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
# The requests by which the user is made, before keys are asked for.
_WITHOUT_KEY = 3


@dataclass
class Ec2Cloud:
    """One such cloud, with one user who may do everything."""

    folder: Path
    port: int
    keys: AwsCredentials = field(default_factory=lambda: AwsCredentials("nobody", "nothing"))
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Where the overlay finds the user's keys."""
        return {
            "AWS_ACCESS_KEY_ID": self.keys.access_key,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret_key,
        }

    @property
    def options(self) -> dict[str, str]:
        """Options of a grid here."""
        return {"region": REGION, "image": IMAGE, "type": TYPE, "endpoint": self.endpoint}

    def start(self) -> None:
        program = shutil.which("moto_server", path=str(Path(sys.executable).parent))
        if program is None:
            pytest.skip("no emulator of EC2 is here: pip install 'moto[ec2]' flask-cors")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "moto.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program, "-H", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        eventually(self._answers, what="the emulator of EC2")

    def empty(self) -> None:
        """Begin again, with a user and no instance."""
        for what, body in (("reset", ""), ("reset-auth", str(_WITHOUT_KEY))):
            answer = requests.post(f"{self.endpoint}/moto-api/{what}", data=body, timeout=30)
            assert answer.ok, answer.text
        self._make_user()

    def _answers(self) -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"{self.endpoint}/moto-api/", timeout=5).ok
        return False

    def _make_user(self) -> None:
        user = {"UserName": "operator"}
        self.call("CreateUser", user, service="iam")
        policy = {**user, "PolicyName": "all", "PolicyDocument": _POLICY}
        self.call("PutUserPolicy", policy, service="iam")
        made = self.call("CreateAccessKey", user, service="iam")
        access, secret = (
            made.findtext(f".//{{*}}{name}") or "" for name in ("AccessKeyId", "SecretAccessKey")
        )
        self.keys = AwsCredentials(access, secret)

    def call(
        self, action: str, parameters: Mapping[str, str], service: str = "ec2"
    ) -> ElementTree.Element:
        """Make a request as the user."""
        version = {"ec2": "2016-11-15", "iam": "2010-05-08"}[service]
        body = urlencode({**parameters, "Action": action, "Version": version}).encode()
        signer = RequestSigner(self.keys, REGION, service)
        url, kind = f"{self.endpoint}/", {"Content-Type": "application/x-www-form-urlencoded"}
        digest = hashlib.sha256(body).hexdigest()
        headers = signer.headers("POST", url, {}, kind, digest, datetime.now(UTC))
        answer = requests.post(url, data=body, headers=headers, timeout=30)
        assert answer.ok, answer.text
        return ElementTree.fromstring(answer.content)

    def instances(self) -> dict[str, dict[str, Any]]:
        """By id: the state and the tags of each that was ever started."""
        found = self.call("DescribeInstances", {}).iterfind(".//{*}instancesSet/{*}item")
        return {
            item.findtext("{*}instanceId") or "": {
                "state": item.findtext("{*}instanceState/{*}name"),
                **{
                    tag.findtext("{*}key") or "": tag.findtext("{*}value")
                    for tag in item.iterfind("{*}tagSet/{*}item")
                },
            }
            for item in found
        }

    def script(self, instance: str) -> str:
        """What an instance was given to run."""
        query = {"InstanceId": instance, "Attribute": "userData"}
        value = self.call("DescribeInstanceAttribute", query).findtext(".//{*}userData/{*}value")
        return gzip.decompress(base64.b64decode(value or "")).decode()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass
class Machines:
    """What runs the scripts of a cloud's instances, and terminates those that switch off."""

    cloud: Ec2Cloud
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def calls(self, instance: str) -> list[str]:
        """What the instance's script did to its machine."""
        return (self._folder(instance) / "calls").read_text().splitlines()

    def _folder(self, instance: str) -> Path:
        return self.cloud.folder / instance

    def run(self) -> None:
        while not self.ended.wait(0.2):
            with suppress(requests.RequestException):  # the next turn asks again
                self._turn()

    def _turn(self) -> None:
        for instance, seen in self.cloud.instances().items():
            if instance not in self.processes and seen["state"] == "running":
                self.processes[instance] = self._begin(instance)
            elif instance in self.processes:
                self._follow(instance, seen["state"])

    def _begin(self, instance: str) -> subprocess.Popen[bytes]:
        script = self.cloud.script(instance)
        folder = self._folder(instance)
        folder.mkdir()
        for name in _FAKED:
            (folder / name).symlink_to(FAKE)
        (folder / "script").write_text(script)
        known = {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder)}
        with (folder / "console").open("wb") as console:
            return subprocess.Popen(
                ["/bin/sh", str(folder / "script")],
                env={**known, "GRIDBOT_TEST_MACHINE": str(folder)},
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip

    def _follow(self, instance: str, state: str) -> None:
        process = self.processes[instance]
        if process.poll() is None and state == "terminated":
            self._kill(process)
        elif process.poll() is not None and state == "running":
            assert self.calls(instance)[-1] == "shutdown -P now"
            self.cloud.call("TerminateInstances", {"InstanceId.1": instance})

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def remove(self) -> None:
        for process in self.processes.values():
            self._kill(process)


@contextmanager
def ec2_cloud(folder: Path) -> Iterator[Ec2Cloud]:
    cloud = Ec2Cloud(folder, free_port())
    try:
        cloud.start()
        yield cloud
    finally:
        cloud.stop()


@contextmanager
def machines(cloud: Ec2Cloud) -> Iterator[Machines]:
    """Let the instances of a cloud run; raises what went wrong there."""
    made = Machines(cloud)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(made.run)
        try:
            yield made
        finally:
            made.ended.set()
            wait([running])
            made.remove()
            running.result()
