"""A launcher for programs that connect to port 5672, which redirects them to another port.

    python at_port.py PORT PROGRAM [ARGUMENT...]

The published examples contain their port; with this, tests can run them on any free port.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from typing import Any

if __name__ == "__main__":
    port = int(sys.argv[1])
    lookup = socket.getaddrinfo

    def redirected(host: Any, asked: Any, *arguments: Any, **options: Any) -> Any:
        return lookup(host, port if int(asked) == 5672 else asked, *arguments, **options)

    socket.getaddrinfo = redirected  # type: ignore[assignment]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
