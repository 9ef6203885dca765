"""Every error that the server raises on purpose; one handler turns them into JSON."""

from http import HTTPStatus
from typing import ClassVar


class ServerError(Exception):
    """Base of the server's own errors; never raised itself.

    `name` is what the JSON answer calls it, by default the class's name; `extra` joins the answer;
    `retry` says whether the same request may succeed later.
    """

    name: ClassVar[str]
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    retry = False

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()
        cls.name = name or cls.__name__

    def __init__(self, detail: str, **extra: object) -> None:
        super().__init__(detail)
        self.detail, self.extra = detail, extra


class RequestError(ServerError):
    """The request is wrong and will stay wrong."""

    status = HTTPStatus.BAD_REQUEST


class InvalidPolicy(RequestError, name="PolicyError"):
    """A policy does not parse or is no policy; `pretty` shows where."""


class InvalidEnvelope(RequestError):
    """What signs a submission does not hold: its signature, key, project or time."""


class Unauthorized(RequestError):
    """The token is missing, unknown, expired or revoked."""

    status = HTTPStatus.UNAUTHORIZED


class Forbidden(RequestError):
    """The token is good, but its scope does not suffice."""

    status = HTTPStatus.FORBIDDEN


class QuotaExceeded(Forbidden):
    """The owner would have more jobs in unfinished BOTs than is allowed."""


class ObjectNotFound(RequestError, name="NotFound"):
    """There is no such thing, or it is another owner's."""

    status = HTTPStatus.NOT_FOUND


class Conflict(RequestError):
    """The thing is not in a state that allows this."""

    status = HTTPStatus.CONFLICT


class SubmitKeyUsed(Conflict):
    """A submission's key has made another BOT; `bot` says which."""


class WrongOffset(Conflict):
    """The sender and the server disagree on how much has arrived; `extra` says where to go on."""


class MissingFiles(Conflict):
    """Files that a submission names have not been uploaded; `missing` lists their hashes."""


class Gone(RequestError):
    """What this belonged to is no longer there, so it is no longer wanted."""

    status = HTTPStatus.GONE


class LengthRequired(RequestError):
    """A body came without Content-Length where its size must be known beforehand."""

    status = HTTPStatus.LENGTH_REQUIRED


class ClientTooOld(RequestError):
    """There is work, and the client cannot check what would run: it must be updated."""

    status = HTTPStatus.UPGRADE_REQUIRED


class TooLarge(RequestError):
    """Something is larger than its limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class HashMismatch(RequestError):
    """An upload is complete but hashes to something else; it was discarded."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class ServerBusy(ServerError):
    """The server cannot do this now; ask again later."""

    status, retry = HTTPStatus.SERVICE_UNAVAILABLE, True


class UploadBusy(ServerBusy):
    """Another request is writing the same upload."""


class StoreFull(ServerBusy):
    """The file store has no room."""


class StoreAway(ServerBusy):
    """The object store with the files does not answer, or not as it should."""


class DatabaseAway(ServerBusy):
    """The database does not answer, as while it restarts."""


class InternalError(ServerError):
    """A defect of the server; the log has the details."""
