"""The HTTP server of the console."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

from ..base.errors import CairnError, InvalidOption
from ..base.secret_files import refuse_exposed
from .app import Console
from .http.connections import Connections
from .http.listener import Listener
from .http.protocol import MOST_HEAD_BYTES, TimedProtocol
from .session.options import ConsoleOptions

log = logging.getLogger(__name__)

ENDING_S = 2
KEEP_ALIVE_S = 30
ACCEPTED_AT_ONCE = 64
"""Connections that one turn of the event loop accepts: so few that those of three turns have room.

With uvicorn's 2,048, connections were ended for newer ones before their requests were read."""
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 256 << 10
BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""


def listening_socket(host: str, port: int) -> Listener:
    """Return a socket that listens on *host* and *port*. Raises `CairnError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "choose another --http-port or --http-listen"
        raise CairnError(f"web console on {host}:{port}", f"can't listen: {reason}", remedy) from error
    return Listener(sock.detach())


def url_of(host: str, sock: socket.socket, *, is_https: bool) -> str:
    """Return the URL of the console that listens on *sock*, at the address *host*."""
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if is_https else 'http'}://{name}:{sock.getsockname()[1]}/"


def _return_large_blocks() -> None:
    """Have the allocator return blocks of responses to the system. Without a fixed threshold it keeps fragments."""
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


class _Server(uvicorn.Server):
    """A server whose backlog in the kernel is longer than the number of connections that it accepts at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(BACKLOG)


def serve(options: ConsoleOptions, sock: Listener, on_start: Callable[[uvicorn.Server], None]) -> None:
    """Serve on *sock* until the server ends. *on_start* receives the server before it starts. Raises `CairnError`."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a warning is a line for each invalid request
    _return_large_blocks()
    protocol: Any = partial(TimedProtocol, Connections(), sock)
    config = uvicorn.Config(
        Console(options).app(),
        http=protocol,
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=ENDING_S,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    if options.tls_key:
        refuse_exposed(f"--tls-key {options.tls_key}", options.tls_key)
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise _unusable_certificate(config, error) from error
    server = _Server(config)
    on_start(server)
    server.run([sock])


def reload_certificate(server: uvicorn.Server) -> None:
    """Use the certificate as it is in its file now for new connections, unless it is invalid. Any thread."""
    config = server.config
    if config.ssl is None or config.ssl_certfile is None:
        return
    try:
        refuse_exposed(f"--tls-key {config.ssl_keyfile}", str(config.ssl_keyfile))
        fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        fresh.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)  # both files, before any of them is used
        config.ssl.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except (OSError, CairnError) as error:
        text = "web console: the old certificate stays in use: %s"
        reason = error if isinstance(error, CairnError) else _unusable_certificate(config, error)
        log.error(text, reason, extra={"event": "console.reload-failed"})


def _unusable_certificate(config: uvicorn.Config, error: OSError) -> InvalidOption:
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    place = f"--tls-cert {config.ssl_certfile}, --tls-key {config.ssl_keyfile}"
    return InvalidOption(place, f"can't be used: {reason}", "give a PEM certificate and its key, unencrypted")
