"""The process of the web console beside a broker. The broker starts it again, with a growing delay, if it ends."""

from __future__ import annotations

import json
import logging
import secrets
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import click

from ...base.errors import InvalidOption
from ...broker_plugin.helper_process import end_process
from ...broker_plugin.run import RunningBroker
from ..common.configured_command import rows_of
from .console import check_listener, is_loopback, require_console
from .settings import BrokerSettings

log = logging.getLogger(__name__)

RELOAD = "reload"
"""The line on standard input that has the console read its certificate again."""
END_S = 5.0
FIRST_DELAY_S = 1.0
MOST_DELAY_S = 60.0
STEADY_S = 60.0
"""A process that ran for so long is started again without a delay that grew."""
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ConsoleProcess:
    """The console of a broker: a socket that listens from the start, and the process that serves it. Any thread."""

    def __init__(self, given: BrokerSettings, context: click.Context) -> None:
        """Listen, so that a port in use is reported before the broker starts. Raises `CairnError`."""
        require_console("--http-port")
        self._given = given
        self._context = context
        self._is_https = given.tls_cert is not None and not is_loopback(given.http_listen)
        check_listener("--http-listen", given.http_listen, has_tls=self._is_https, is_insecure=given.http_insecure)
        if given.tls_only:
            remedy = "run `cairnmq console --url amqps://NAME:PORT` beside it, with a name of the certificate"
            raise InvalidOption("--http-port", "the console can't connect to a broker with --tls-only", remedy)
        from ...console.server import listening_socket, url_of

        assert given.http_port is not None
        self._sock = listening_socket(given.http_listen, given.http_port)
        self.token = secrets.token_urlsafe(16)
        """The secret by which the broker recognizes its console."""
        self.url = url_of(given.http_listen, self._sock, is_https=self._is_https)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def start(self, running: RunningBroker) -> None:
        """Start the process for a broker that listens."""
        options = json.dumps(self._options(running))
        self._process = self._begin(options)
        threading.Thread(target=self._watch, args=(options,), name="cairnmq-console", daemon=True).start()

    def reload(self) -> None:
        """Have the console read its certificate again. Any thread."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended; the next one reads the file at its start
                process.stdin.write(f"{RELOAD}\n")
                process.stdin.flush()

    def stop(self) -> None:
        """End the process after its present requests, or by force after a time limit."""
        self._stopping.set()
        self._sock.close()
        if self._process is not None:
            end_process(self._process, END_S)

    def _options(self, running: RunningBroker) -> dict[str, Any]:
        given = self._given
        return {
            "broker_host": _EVERYWHERE.get(given.listen, given.listen),
            "broker_port": running.port,
            "broker_token": self.token,
            "host": given.http_listen,
            "port": self._sock.getsockname()[1],
            "host_names": list(given.http_host),
            "tls_cert": given.tls_cert if self._is_https else None,
            "tls_key": (given.tls_key or given.tls_cert) if self._is_https else None,
            "store_dir": given.store_dir if given.store == "journal" else None,
            "archive_dir": given.archive_dir,
            "also": given.http_also,
            "log_file": given.log_file,
            "signs_in_anonymously": self._is_open(),
            "configuration": rows_of(self._context),
        }

    def _is_open(self) -> bool:
        """Return whether only programs on this machine reach broker and console, and the broker has no users."""
        given = self._given
        is_local = is_loopback(given.listen) and is_loopback(given.http_listen) and not given.http_host
        return is_local and given.users_file is None and given.tls_ca is None

    def _begin(self, options: str) -> subprocess.Popen[str]:
        fd = self._sock.fileno()
        # in a session of its own, so that the broker ends it, and not Ctrl-C before
        process = subprocess.Popen(
            [sys.executable, "-m", "cairnmq.console.beside", str(fd)], stdin=subprocess.PIPE, text=True,
            start_new_session=True, pass_fds=(fd,),
        )  # fmt: skip
        assert process.stdin is not None
        with suppress(OSError):  # it has ended; `_watch` sees that
            process.stdin.write(f"{options}\n")
            process.stdin.flush()
        return process

    def _watch(self, options: str) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            assert self._process is not None
            begun_s = time.monotonic()
            status = self._process.wait()
            if self._stopping.is_set():
                return
            delay_s = FIRST_DELAY_S if time.monotonic() - begun_s > STEADY_S else delay_s
            text = "the web console ended with status %d; it is started again in %g s"
            log.warning(text, status, delay_s, extra={"event": "broker.console-ended"})
            if self._stopping.wait(delay_s):
                return
            delay_s = min(MOST_DELAY_S, 2 * delay_s)
            self._process = self._begin(options)
