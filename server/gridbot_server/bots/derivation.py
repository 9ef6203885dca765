"""What a BOT's jobs run, but for their arguments and own files: what makes an outcome reusable."""

from __future__ import annotations

import hashlib

import orjson

from gridbot_client.protocol.messages import FileRef, Manifest


def derivation_of(owner: int, manifest: Manifest) -> bytes | None:
    """Return a hash of it; None for gangs, whose answers are not those of single jobs.

    It covers the command, or the table of programs, files, environment, standard input, image,
    platforms, the network, names of outputs, exit codes and whether BOINC clients run it: not
    limits, names, policies and signatures.  The owner is part of it: what others have derived is
    never found.
    """
    if manifest.together > 1:
        return None
    covered: list[object] = [
        owner,
        manifest.command,
        sorted(map(_file, manifest.inputs)),
        sorted(manifest.archives),
        manifest.requirements,
        manifest.conda_pack,
        manifest.image,
        sorted(manifest.outputs),
        sorted(manifest.output_names.items()),
        sorted(manifest.platforms),
        manifest.exit_codes,
        sorted(manifest.environment.items()),
        manifest.stdin,
        manifest.walls.network,
    ]
    if manifest.boinc_api:
        covered.append("boinc_api")
    if manifest.programs:
        covered.append([(item.where, item.command, item.inputs) for item in manifest.programs])
    return hashlib.sha256(orjson.dumps(covered)).digest()


def _file(ref: FileRef) -> tuple[str, str, bool]:
    return ref.name, ref.sha256, ref.executable
