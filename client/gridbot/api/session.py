"""A scientist's view of one server: submit BOTs, and find those that are there."""

from __future__ import annotations

import dataclasses
import operator
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import SupportsIndex

from gridbot.api import signing_key
from gridbot.api.bot import Bot
from gridbot.api.connection import Connection, log_away, quiet
from gridbot.api.documents import (
    Bots,
    Grids,
    GridState,
    Groups,
    GroupState,
    Invalidated,
    Provenance,
    Signing,
)
from gridbot.api.errors import BadInput, GridbotError, NotFound, ServerAway
from gridbot.api.group import BotGroup
from gridbot.api.inputs import Input, Progress, sha256_of
from gridbot.api.items import Items
from gridbot.api.known_answers import Answers
from gridbot.api.programs import PlatformProgram
from gridbot.api.sending import Signer, Told, send
from gridbot.api.signing_key import OwnerKey
from gridbot.api.state import BotState, bot_state
from gridbot.api.submission import Submission, prepare
from gridbot_client.net.discovery import NoServer, WrongEndpoint, find_server, signing_key_path
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.messages import MAX_BIGINT, JobInput


def connect(server: str | None = None, key_file: str | Path | None = None) -> Session:
    """Return a session with a server; sends nothing yet.

    Without arguments: GRIDBOT_SERVER and GRIDBOT_KEY, the server of `gridbot login`, or a server
    of this user on this machine.  Raises ServerAway when none is known, BadInput for a wrong URL.
    """
    try:
        return Session(Connection(find_server(server, Path(key_file) if key_file else None)))
    except WrongEndpoint as error:
        raise BadInput(str(error)) from None
    except NoServer as error:
        raise ServerAway(str(error)) from None


class Session:
    """One server with one key.  A context manager that closes the connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._signer: Signer | None = None

    def __repr__(self) -> str:
        return f"<Session at {self.connection.url}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def submit(
        self,
        command: Sequence[str] | str,
        items: Items | range | Path | Iterable[object] | None = None,
        *,
        inputs: Sequence[Input] = (),
        job_inputs: Sequence[str | JobInput] = (),
        outputs: Sequence[str] = Submission.outputs,
        policy: str | Path = "",
        priority: int | None = None,
        name: str = "",
        cpus: int = Submission.cpus,
        memory: int | str = Submission.memory,
        disk: int | str = Submission.disk,
        time: float | str = Submission.time,
        gpus: int = Submission.gpus,
        platforms: Sequence[str] = (),
        programs: Mapping[str, PlatformProgram] | None = None,
        max_output: int | str = Submission.max_output,
        quorum: int = Submission.quorum,
        validator: str = Submission.validator,
        known_answers: str | Path | Answers | None = None,
        attempts: int = Submission.attempts,
        max_replicas: int = Submission.max_replicas,
        failover_after: int | None = None,
        max_failures: int | str | None = None,
        tail_threshold: int | None = None,
        tail_sticky: bool = Submission.tail_sticky,
        network: bool = False,
        sandbox: int = 0,
        exit_codes: Iterable[int] | str = Submission.exit_codes,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        requirements: str | Path = "",
        conda_pack: str | Path = "",
        image: str | Path = "",
        resident: int = 0,
        together: int = 1,
        gather: float | str = Submission.gather,
        checkpoint: Sequence[str] | CheckpointRule = (),
        boinc_api: bool = False,
        growing: bool = False,
        reuse: bool = False,
        outputs_to: str = "",
        group: str = Submission.group,
        idempotency_key: str | None = None,
        base: Path | None = None,
        progress: Progress = quiet,
        told: Told = log_away,
    ) -> Bot:
        """Create a BOT; what the arguments mean stands at `Submission`.

        Sizes are MB or texts such as "2GB"; `time` is seconds or "10m".  All input is checked
        before anything is sent.  Repeating the call with the same `idempotency_key` continues the
        submission or returns the same BOT.  `told` gets the error while the server is away, for
        two minutes at most.  Raises BadInput, PolicyError, Refused or ServerAway.
        """
        given = locals()  # the arguments are the fields of a submission
        fields = {item.name: given[item.name] for item in dataclasses.fields(Submission)}
        defaults = ("env", "programs", "idempotency_key", "base")  # are made for each submission
        for field in defaults:
            if fields[field] is None:
                del fields[field]
        prepared = prepare(Submission(**fields))
        document = send(self.connection, prepared, self.signer(), progress, told)
        document["warnings"] = [*prepared.notes, *document.get("warnings", [])]
        return Bot(self.connection, document["id"], document, self.signer, prepared.job_inputs)

    def signing_key(self) -> OwnerKey:
        """The key pair that signs this user's BOTs for the server; made when it is missing.

        Raises BadInput.
        """
        kept = self.connection.signing_key or signing_key_path()
        return signing_key.ensure(signing_key.usual_path(kept))

    def signer(self) -> Signer:
        """The signing key, once the server knows it.

        Raises Refused if an older key of this user must introduce it first.
        """
        if self._signer is None:
            key = self.signing_key()
            document = self._signing()
            if key.public.hex() not in {known["key"] for known in document["keys"]}:
                body = {"key": key.public.hex(), "label": platform.node()[:200] or "no name"}
                document = self.connection.send("POST", "/signing/keys", body)
            self._signer = Signer(key, document["owner"], document["project"])
        return self._signer

    def project_key(self) -> str:
        """The project's present public key, in hex, as the server tells it."""
        return self._signing()["project_key"]

    def _signing(self) -> Signing:
        try:
            found: Signing = self.connection.get("/signing")
        except NotFound:
            raise GridbotError(
                f"{self.connection.url} is an older server, which knows no signing keys; ask its"
                " operator to update it"
            ) from None
        return found

    def bot(self, number: int) -> Bot:
        """BOT with this number; its first method call raises NotFound if it does not exist.

        Raises BadInput for what is no number.
        """
        if isinstance(number, bool) or not isinstance(number, SupportsIndex):
            raise BadInput(f"{number!r} is no number of a BOT")
        number = operator.index(number)
        if not 0 < number <= MAX_BIGINT:
            raise NotFound(f"there is no BOT {number}")
        return Bot(self.connection, number, signer=self.signer)

    def group(self, name: str, owner: str | None = None) -> BotGroup:
        """The BOTs that are submitted with this `group`; an operator may name another `owner`.

        There is none before its first BOT: then methods raise NotFound.
        """
        return BotGroup(self, name, owner)

    def grids(self, match: str = "") -> list[GridState]:
        """Grids that constructors have told of; with `match` those of which it is true.

        It is an expression as in a GridPolicy: "Grid.Gpus > 0".
        """
        found: Grids = self.connection.get("/grids", match=match)
        return found["grids"]

    def why(self, file: str | Path) -> Provenance:
        """What made a content from what, and what read it, as a document.

        `file` is a path or a SHA-256 in hex.  Raises NotFound if no job of this user did.
        """
        found: Provenance = self.connection.get(f"/data/{sha256_of(file)}")
        return found

    def invalidate(self, file: str | Path) -> Invalidated:
        """Let no answer be reused that has this content or depends on it; return how many.

        To run those jobs again, submit with `reuse`.  Raises BadInput.
        """
        path = f"/data/{sha256_of(file)}/invalidate"
        found: Invalidated = self.connection.send("POST", path, {})
        return found

    def groups(self) -> list[GroupState]:
        """Groups that this key may see, newest first, as documents."""
        found: Groups = self.connection.get("/groups")
        return found["groups"]

    def bots(
        self, state: str | None = None, limit: int | None = None, group: str | None = None
    ) -> list[BotState]:
        """BOTs that this key may see, newest first."""
        found: Bots = self.connection.get("/bots", state=state, limit=limit, group=group)
        return [bot_state(document) for document in found["bots"]]
