"""The options of a console process."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConsoleOptions(NamedTuple):
    """The broker, the listener, and the files of one console."""

    broker_host: str = "127.0.0.1"
    broker_port: int = 5672
    broker_tls: bool = False
    broker_ca: str | None = None
    """PEM file with the CA of the broker's certificate; by default those of the system."""
    host: str = "127.0.0.1"
    port: int = 8161
    host_names: tuple[str, ...] = ()
    """Names, besides those of this host, that browsers may use for the console."""
    tls_cert: str | None = None
    tls_key: str | None = None
    store_dir: str | None = None
    """The store whose history is served; None: no history."""
    archive_dir: str | None = None
    also: tuple[str, ...] = ()
    """Stores of other brokers, in which traces of messages continue."""
    log_file: str | None = None
    """The log file of the broker, for the log page."""
    session_idle_s: float = 1800.0
    broker_token: str = ""
    """The secret that proves to the broker that this is its own console; empty for another console."""
    signs_in_anonymously: bool = False
    """Pages log in without a user: broker and console are on loopback, and the broker has no users."""
    configuration: tuple[Any, ...] = ()
    """The options of the broker with their values and sources, as maps."""

    @property
    def broker_url(self) -> str:
        host = f"[{self.broker_host}]" if ":" in self.broker_host else self.broker_host
        return f"{'amqps' if self.broker_tls else 'amqp'}://{host}:{self.broker_port}"
