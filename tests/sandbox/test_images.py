"""Images that a client keeps: they go with their shared folders, and take no more than is lent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers import image, needed

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.work.containers import Watch
from gridbot_client.work.images import Images
from gridbot_client.work.podman import Podman
from gridbot_client.work.shared import CannotProvide, Interrupted, SharedFolders

MB = 1 << 20


class Keeping:
    """One client that keeps images, by Podman."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        (folder / "shared").mkdir(parents=True)
        self.folder = folder
        self.images = Images.of(["podman"], folder / "containers", False)
        self.folders = SharedFolders(folder / "shared", most_bytes, self.images.remove)

    def lent(self, packed: Path, most_bytes: int = 1 << 40):  # type: ignore[no-untyped-def]
        """The folder of an image, loaded if need be."""
        ref = FileRef("image.tar", f"{hash(packed) % 10**16:064}", packed.stat().st_size)
        manifest = Manifest("a", ("p",), inputs=(ref,), image="image.tar")

        def fetch(_: FileRef, target: Path) -> None:
            target.write_bytes(packed.read_bytes())

        wanted = self.images.wanted(manifest, fetch, lambda: False, most_bytes)
        return self.folders.lent(*wanted, is_guarded=True)

    @property
    def stored(self) -> int:
        """Images in Podman's store."""
        return len(list((self.folder / "containers" / "store").glob("*-images/*/manifest")))


@pytest.fixture
def keeping(private_directory: Path) -> Iterator[Keeping]:
    needed("podman")
    made = Keeping(private_directory / "client", 12 * MB)
    yield made
    made.images.empty()
    made.images.close()


def test_images_that_nobody_uses_go_when_there_is_no_room(
    keeping: Keeping, private_directory: Path
) -> None:
    packed = [image(private_directory / f"{number}.tar", f"{number}" * MB) for number in range(4)]
    with keeping.lent(packed[0]) as in_use:
        for other in packed[1:]:
            with keeping.lent(other):
                pass
        kept = len(list(keeping.folder.glob("shared/*/mark.json")))
        assert keeping.stored == kept < len(packed)
        assert (in_use / "image-id").exists()
        keeping.images.sweep()
        assert keeping.stored == kept
    keeping.images.empty()
    assert keeping.stored == 0


def test_the_same_image_in_two_archives_goes_with_the_second(
    keeping: Keeping, private_directory: Path
) -> None:
    one, other = (image(private_directory / f"{name}.tar") for name in "ab")
    with keeping.lent(one) as first, keeping.lent(other) as second:
        assert (first / "image-id").read_text() == (second / "image-id").read_text()
        keeping.images.remove(first)
        assert keeping.stored == 1
        (first / "image-id").parent.chmod(0o755)
        (first / "image-id").unlink()
        keeping.images.remove(second)
        assert keeping.stored == 0


def test_an_image_that_takes_more_than_is_lent_is_refused_by_its_size(
    private_directory: Path,
) -> None:
    script = "dd if=/dev/zero of=large bs=1M count=64 2>/dev/null; exec sleep 600"
    with pytest.raises(CannotProvide, match="more than the 8 MB that this machine gives it"):
        Watch(most_bytes=8 * MB, seconds=60).call(
            ["sh", "-c", script], {"PATH": "/bin:/usr/bin"}, private_directory
        )
    with pytest.raises(CannotProvide, match="it took more than 1 s"):
        Watch(seconds=1).call(["/bin/sleep", "600"], {}, private_directory)
    with pytest.raises(Interrupted):
        Watch(is_stopped=lambda: True).call(["/bin/sleep", "600"], {}, private_directory)


def test_a_name_never_leads_to_files_of_the_machine(
    keeping: Keeping, private_directory: Path
) -> None:
    packed = image(private_directory / "secret.tar")
    podman = Podman(keeping.folder / "containers")
    (private_directory / "top").mkdir()
    for name in (f"docker-archive:{packed}", f"oci-archive:{packed}", f"dir:{private_directory}"):
        with pytest.raises(CannotProvide):
            podman.pull(name, private_directory / "top", Watch())
    assert keeping.stored == 0


def test_a_folder_that_others_made_first_is_not_used(private_directory: Path) -> None:
    needed("podman")
    containers = private_directory / "containers"
    podman = Podman(containers)
    podman._run.mkdir(mode=0o777)
    podman._run.chmod(0o777)
    try:
        with pytest.raises(CannotProvide, match="is not this user's own: remove it"):
            podman.pull("localhost/none", private_directory, Watch())
    finally:
        podman._run.rmdir()


def test_leaving_takes_the_store_along(keeping: Keeping, private_directory: Path) -> None:
    with keeping.lent(image(private_directory / "one.tar")):
        pass
    keeping.images.empty()
    keeping.images.close()
    run = keeping.folder / "containers"
    left = subprocess.run(
        ["find", run, "-not", "-user", str(run.stat().st_uid)], capture_output=True
    )
    assert left.stdout == b""
