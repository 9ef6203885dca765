"""A server of small stand-in children under the real supervisor: DATA DATABASE? CHILD..."""

import os
import signal
import sys
from pathlib import Path

from gridbot_server.settings import DATA_VARIABLE, Settings, split_bind
from gridbot_server.supervision.lock_file import StartError, take_lock
from gridbot_server.supervision.postgres import Postgres
from gridbot_server.supervision.processes import Child
from gridbot_server.supervision.supervisor import Supervisor

WEB = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"jobs": 7}')
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
PROGRAMS = {
    "family": ["/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait"],
    "stubborn": ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
    "broken": ["/bin/sh", "-c", "echo the reason why >&2; exit 3"],
    "missing": ["/no/such/program"],
}


def main(data: Path, database: bool, names: list[str]) -> None:
    settings = Settings.load(data)
    settings.make_directories()
    settings.buffer_path.touch()
    _, port = split_bind(settings.bind)
    programs = {**PROGRAMS, "web": [sys.executable, "-c", WEB, str(port)]}
    children = [
        Child(
            name=name,
            argv=programs[name],
            env={**os.environ, DATA_VARIABLE: str(data)},
            directory=data,
            stop_signals=((signal.SIGTERM, 2.0),),
        )
        for name in names
    ]
    postgres = Postgres(data, durable=False) if database else None
    supervisor = Supervisor(settings, take_lock(settings), children, postgres)
    supervisor.run(lambda settings: None, lambda: None)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2] == "database", sys.argv[3:])
    except StartError as error:
        sys.exit(str(error))
