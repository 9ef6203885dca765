"""Networks on this machine that have nothing in common, and doors for single ports between them.

A network is named by the file that stands for its namespace; None is the one that we are in.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_BYTES = 65_536

Address = tuple[str, int]


@contextmanager
def inside(network: Path | None) -> Iterator[None]:
    """Let this thread be in a network, with the programs that it starts and its new sockets."""
    if network is None:
        yield
        return
    with _opened(Path("/proc/thread-self/ns/net")) as back, _opened(network) as there:
        _enter(there)
        try:
            yield
        finally:
            _enter(back)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def listener(network: Path | None, address: Address) -> socket.socket:
    """Listen in a network."""
    with inside(network):
        return socket.create_server(address)


def is_reached(network: Path | None, address: Address, seconds: float) -> bool:
    """Try to connect from a network."""
    with inside(network):
        probe = socket.socket()
    with probe:
        probe.settimeout(seconds)
        return probe.connect_ex(address) == 0


@dataclass(frozen=True, kw_only=True)
class Door:
    """Who connects to `at` in `outside` speaks with `behind` in `within`."""

    outside: Path | None
    at: Address
    within: Path | None = None
    behind: Address

    async def serve(self, listens: socket.socket) -> None:
        """Let everybody through, for ever."""
        server = await asyncio.start_server(self._let_through, sock=listens)
        await server.serve_forever()

    async def _let_through(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with inside(self.within):
            link = socket.socket()
        link.setblocking(False)
        try:
            # Either side may go at any time, and both stay when the door is closed.
            with link, suppress(OSError, asyncio.CancelledError):
                await asyncio.get_running_loop().sock_connect(link, self.behind)
                answers, asks = await asyncio.open_connection(sock=link)
                await asyncio.gather(_pass(reader, asks), _pass(answers, writer))
        finally:
            writer.close()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_MOST_BYTES):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


@contextmanager
def opened(*doors: Door) -> Iterator[None]:
    """Keep doors open."""
    with ExitStack() as stack:
        listening = [(door, stack.enter_context(listener(door.outside, door.at))) for door in doors]
        loop, stop = asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            tasks = [asyncio.create_task(door.serve(listens)) for door, listens in listening]
            await stop.wait()
            for task in tasks:
                task.cancel()

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())

        thread = threading.Thread(target=run, name="doors")
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
