"""`cairnmq console`: serve the web console of a broker."""

from __future__ import annotations

import ipaddress
import signal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import CairnError, InvalidOption
from ...base.extras import install_hint
from ..common.local_directory import LocalDirectory
from ..common.login_options import PORTS, checked_url
from ..common.units import Duration
from ..options.ca_file import CaFile
from ..options.common_options import url_option
from ..options.subjects import CONNECTION, GroupedCommand, option

if TYPE_CHECKING:
    from uvicorn import Server

HTTP_PORT = 8161
HTTP, TLS, HISTORY = "Web console", "TLS", "History and logs"


@click.command("console", cls=GroupedCommand, example="console --url amqps://broker.example:5671 --http-port 8161")
@url_option
@option(CONNECTION, "--ca", type=CaFile(), metavar="FILE",
        help="CA of the broker's certificate (PEM).  [default: the system's]")
@option(HTTP, "--http-port", type=click.IntRange(0, 65535), default=HTTP_PORT, show_default=True,
        help="Port of the console; 0: any free port.")
@option(HTTP, "--http-listen", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@option(HTTP, "--http-host", multiple=True, metavar="NAME", help="A host name that browsers use for the console.")
@option(HTTP, "--http-insecure", is_flag=True, help="Serve HTTP without TLS on an address other than loopback.")
@option(HTTP, "--session-timeout", type=Duration(10, 86_400), default="30m", show_default=True,
        help="End sessions that are idle for this time.")
@option(TLS, "--tls-cert", type=click.Path(dir_okay=False), help="Certificate chain for HTTPS (PEM).")
@option(TLS, "--tls-key", type=click.Path(dir_okay=False), help="Private key (PEM).  [default: in --tls-cert]")
@option(HISTORY, "--store-dir", type=LocalDirectory(file_okay=False),
        help="Data directory of the broker, for pages of history.  [default: none]")
@option(HISTORY, "--archive-dir", type=LocalDirectory(file_okay=False),
        help="Archive of the broker, for pages of history.")
@option(HISTORY, "--also", multiple=True, type=LocalDirectory(file_okay=False), metavar="STORE",
        help="Store of another broker, where traces of messages continue. Repeatable.")
@option(HISTORY, "--log-file", type=click.Path(dir_okay=False), help="Log file of the broker, for the page of logs.")
def console(
    url: str, ca: str | None, http_port: int, http_listen: str, http_host: tuple[str, ...], http_insecure: bool,
    tls_cert: str | None, tls_key: str | None, session_timeout: float, **places: Any,
) -> None:  # fmt: skip
    """Serve the web console and the HTTP API of a broker until SIGTERM or Ctrl-C.

    Users log in with their names and passwords of the broker. `cairnmq broker --http-port` starts a console with the
    broker. SIGHUP has the certificate read again.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server can read its certificate again
    require_console("console")
    check_listener("--http-listen", http_listen, has_tls=tls_cert is not None, is_insecure=http_insecure)
    from ...console.server import listening_socket, reload_certificate, serve, url_of
    from ...console.session.options import ConsoleOptions

    parts = checked_url(url)
    options = ConsoleOptions(
        parts.hostname or "", parts.port or PORTS[parts.scheme], parts.scheme == "amqps", ca, http_listen, http_port,
        http_host, tls_cert, tls_key or tls_cert, session_idle_s=session_timeout, **places,
    )  # fmt: skip
    sock = listening_socket(http_listen, http_port)

    def started(server: Server) -> None:
        signal.signal(signal.SIGHUP, lambda *_: reload_certificate(server))
        click.echo(f"web console at {url_of(http_listen, sock, is_https=bool(tls_cert))}")

    serve(options, sock, started)


def missing_module() -> str:
    """Return the first package of the extra that is not installed; empty if all are."""
    return next((module for module in ("starlette", "uvicorn") if find_spec(module) is None), "")


def require_console(place: str) -> None:
    """Raise `CairnError` if the packages of the extra are not installed."""
    if module := missing_module():
        raise CairnError(place, f"{module} is not installed", install_hint("console"))


def check_listener(option: str, host: str, *, has_tls: bool, is_insecure: bool) -> None:
    """Raise `InvalidOption` if passwords would be sent in clear text over a network."""
    if not has_tls and not is_insecure and not is_loopback(host):
        raise InvalidOption(
            f"{option} {host}", "passwords would be sent in clear text over the network",
            "configure --tls-cert, or use --http-insecure behind a proxy that speaks TLS",
        )  # fmt: skip


def is_loopback(host: str) -> bool:
    """Return whether *host* is a loopback address, or `localhost`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
