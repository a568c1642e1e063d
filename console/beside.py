"""The console as a process beside a broker.

The first line of standard input is the options, as a JSON object; the listening socket is inherited. Each further line
has the certificate read again. The process ends when its standard input is closed: the broker has stopped, or was
killed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading

import uvicorn

from ..base.errors import CairnError
from ..base.private_files import tighten_umask
from .http.listener import Listener
from .server import reload_certificate, serve
from .session.options import ConsoleOptions


def main() -> None:
    """Run the process."""
    tighten_umask()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    options = ConsoleOptions(**json.loads(sys.stdin.readline()))
    sock = Listener(int(sys.argv[1]))
    try:
        serve(options, sock, _end_with_broker)
    except CairnError as error:
        print(f"web console: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _end_with_broker(server: uvicorn.Server) -> None:
    def watch() -> None:
        for _ in sys.stdin:
            reload_certificate(server)
        server.should_exit = True

    threading.Thread(target=watch, name="end-of-broker", daemon=True).start()


if __name__ == "__main__":
    main()
