"""A mail relay of a test's own."""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string, policy


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[int]:
    """Let a server serve in a thread; give its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Relay:
    """A mail relay that takes everything, but for one mailbox perhaps."""

    port: int = 0
    lines: list[str] = field(default_factory=list)
    refused: str = ""  # the mailbox

    @property
    def address(self) -> str:
        """What the setting `mail_relay` says of it."""
        return f"127.0.0.1:{self.port}"

    @property
    def texts(self) -> list[str]:
        """What the mails say, as a mail program shows it."""
        said = "\n".join(self.lines)
        mails = re.findall(r"^data\n(.*?)^\.$", said, re.MULTILINE | re.DOTALL | re.IGNORECASE)
        parsed = (message_from_string(mail, policy=policy.default) for mail in mails)
        return [str(mail.get_content()) for mail in parsed]

    @property
    def code(self) -> tuple[int, str]:
        """The address and its code, as the last mail tells."""
        (*_, line) = (line for line in self.lines if "notices confirm" in line)
        address, code = line.split()[-2:]
        return int(address), code


@contextmanager
def relaying() -> Iterator[Relay]:
    """Take mail, and keep what was said."""
    found = Relay()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            in_data = False
            for line in self.rfile:
                found.lines.append(line.decode().rstrip("\r\n"))
                last = found.lines[-1]
                if in_data and last != ".":
                    continue
                in_data = last.upper() == "DATA"
                code = 354 if in_data else 221 if last.upper() == "QUIT" else 250
                if found.refused and last.upper() == f"RCPT TO:<{found.refused}>".upper():
                    code = 550
                self.wfile.write(f"{code} fine\r\n".encode())

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as found.port:
        yield found
