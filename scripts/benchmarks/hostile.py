"""The cost of a host request while one owner's policies are made to take long."""

from __future__ import annotations

from contextlib import ExitStack

from gridbot import Session

from .harness.command import measurement
from .harness.host_requests import COLUMNS, Size, beside_first, sized
from .harness.stages import COMMAND, Server, Stock, Subject, prepared
from .harness.windows import Row

BOTS = 50
_PLAIN = "JobRequirements = Host.NumCpus > {number} * 100000;"


def _chain(number: int) -> str:
    links = (f"X{n} = strcat(X{n - 1}, X{n - 1});" for n in range(1, 14))
    return f'X0 = "{number:08}"; {" ".join(links)} JobRequirements = size(X13) < 1;'


def _doubling(number: int) -> str:
    links = (f"X{n} = X{n - 1} + X{n - 1};" for n in range(1, 60))
    return f"X0 = {number}; {' '.join(links)} JobRequirements = X59 < 0; Rank = X59;"


def _circle(number: int) -> str:
    links = (f"X{n} = X{(n + 1) % 40} + X{(n + 7) % 40} + {number};" for n in range(40))
    return f"{' '.join(links)} JobRequirements = X0 =!= undefined;"


def _split(number: int) -> str:
    return f'JobRequirements = size(split("{"a," * 7000}")) < {number};'


def _pattern(number: int) -> str:
    text = f'strcat("{"a" * 8000}", Host.Name)'
    return f'JobRequirements = regexp("(a{{1,30}}){{1,20}}z{number}", {text});'


def _nested(number: int) -> str:
    links = (f"X{n} = {{X{n - 1}, X{n - 1}}};" for n in range(1, 40))
    return f"X0 = {{{number}}}; {' '.join(links)} JobRequirements = sum(X39) < 0 && size(X39) < 0;"


def _parsed(number: int) -> str:
    return f'JobRequirements = eval("{"1+" * 3000}{number}") < 0;'


HOSTILE = (_chain, _doubling, _circle, _split, _pattern, _nested, _parsed)


@measurement({"hostile BOTs": ["hostile"], "suspended": ["suspended"], **COLUMNS})
@sized(rounds=5, seconds=3.0, requests=2000)
def hostile(size: Size, quick: bool) -> list[Row]:  # noqa: ARG001  # quick is in the size
    """The cost of a request with 50 BOTs whose policies are made to take long."""
    with ExitStack() as stack:
        subjects, sessions = [], []
        for count in (0, BOTS):
            place, known, load = stack.enter_context(prepared())
            session = stack.enter_context(place.session())
            _submit(session, count)
            stock = Stock(place, session, 2 * size.jobs(), size.jobs())
            stage = Server(place, load, stock.fill, known)
            subjects.append(Subject(stage, size.plan(stage.port), {"hostile": count}))
            sessions.append(session)
        rows = beside_first(subjects, size.rounds)
        return [
            {**row, "suspended": _suspended(session)}
            for row, session in zip(rows, sessions, strict=True)
        ]


def _submit(session: Session, hostile: int) -> None:
    """Submit BOTs that no host suits, so many of them hostile."""
    for number in range(1, BOTS + 1):
        policy = _PLAIN.format(number=number)
        if number <= hostile:
            policy = HOSTILE[number % len(HOSTILE)](number)
        session.submit(COMMAND, range(10), policy=policy)


def _suspended(session: Session) -> int:
    bots = [session.bot(bot.id).show() for bot in session.bots(state="running")]
    return sum(bool(bot.document["suspended"]) for bot in bots)
