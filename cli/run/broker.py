"""`cairnmq broker`: run a broker until it is told to stop."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import click

from ...amqp.links.events import Limits
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...broker_plugin.options import (
    ArchiveLimits,
    BrokerOptions,
    QueueChoice,
    Quota,
    RouterOptions,
    StoreOptions,
    TransactionLimits,
    parse_link_route,
)
from ...broker_plugin.run import RunningBroker
from ...broker_plugin.service_manager import service_manager
from ...router.admission.admission import AdmissionOptions
from ...router.tls import NONE, OPTIONAL, REQUIRED
from ..common.connect import connect_options
from ..common.local_directory import LocalDirectory
from ..common.signals import Ended
from ..common.units import AGE, SIZE, SIZE_OR_NONE, Finite, SizeRange, host_port
from .announcements import Announce, announcer, reporting_errors
from .broker_choices import cluster_of, export_of, lets_nameless_in, sidecars_of, tls_of
from .connect_to import auto_links_of, targets_of
from .recovery_progress import RecoveryProgress

Command = Callable[..., Any]

GARBAGE_AFTER = 20_000
"""So many more objects than before, and Python looks for cycles among them. Messages on their way are thousands of
objects that are in none; by default it looks after 700."""


def _option(name: str, default: float, kind: click.ParamType[Any], text: str) -> Callable[[Command], Command]:
    return click.option(name, default=default, show_default=True, type=kind, help=text)


@click.command("broker")
@click.option("--store-dir", type=LocalDirectory(file_okay=False),
              help="Where messages are kept; needed unless in memory.")  # fmt: skip
@click.option(
    "--store",
    "store_kind",
    default="journal",
    show_default=True,
    metavar="KIND",
    help="journal: messages in a journal; sql: in the database of the wiring; memory: gone with the broker; or what "
    "a package that is installed offers.",
)
@connect_options("A PostgreSQL server for the wiring, in place of SQLite in the store directory")
@click.option("--port", default=5672, show_default=True, type=click.IntRange(0, 65535), help="0 for any free one.")
@click.option("--listen", "host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--anonymous", count=True, help="Let anyone in; on an address other than loopback, say it twice.")
@click.option("--users-file", type=click.Path(dir_okay=False), help="Who can log in; see `cairnmq users`.")
@click.option("--allow-insecure-auth", is_flag=True, help="Take passwords (PLAIN) also without TLS.")
@click.option("--acl-file", type=click.Path(dir_okay=False), help="Who may do what (TOML); everybody all, by default.")
@click.option("--tls-port", type=click.IntRange(0, 65535), help="Listen there with TLS; 0 for any free one.")
@click.option("--tls-only", is_flag=True, help="Don't listen without TLS.")
@click.option("--tls-cert", type=click.Path(dir_okay=False), help="The broker's certificate and its chain (PEM).")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Its key (PEM); in --tls-cert, by default.")
@click.option("--tls-ca", type=click.Path(dir_okay=False), help="The CAs whose client certificates are believed (PEM).")
@click.option("--tls-crl", type=click.Path(dir_okay=False), help="Which client certificates are revoked (CRLs, PEM).")
@click.option(
    "--tls-client-certs",
    type=click.Choice([NONE, OPTIONAL, REQUIRED]),
    help="Whether clients show certificates.  [default: optional with --tls-ca, else none]",
)
@click.option("--auto-create", multiple=True, default=["*"], help="Names of queues made on first use; all, by default.")
@click.option("--no-auto-create", is_flag=True, help="Make no queues on first use.")
@click.option(
    "--anycast",
    multiple=True,
    metavar="PATTERN",
    help="Addresses where nothing is stored and each message goes straight to one receiver.",
)
@click.option("--multicast", multiple=True, metavar="PATTERN", help="The same, to all receivers.")
@click.option(
    "--connect-to",
    multiple=True,
    metavar="URL",
    help="Keep a connection to another container: amqp[s]://[user@]host[:port][?name=NAME&role=inter-router&...]. "
    "The password: in --connect-to-password-file, or what password-file or password-env in the URL names.",
)
@click.option(
    "--connect-to-password-file",
    type=click.Path(dir_okay=False),
    help="The password for users in --connect-to that have no other.",
)
@click.option(
    "--secrets-dir", type=click.Path(file_okay=False), help="Passwords and certificates for `ctl connectors create`."
)
@click.option(
    "--link-route",
    "link_routes",
    multiple=True,
    metavar="PATTERN=NAME",
    help="Links to these addresses go on over that --connect-to; behind it may stand ,send or ,receive or "
    ",strip=PREFIX.",
)
@click.option(
    "--auto-link",
    multiple=True,
    metavar="in|out:ADDRESS@NAME[:EXTERNAL]",
    help="Join a queue with an address of that --connect-to: messages come in from there, or go out.",
)
@click.option(
    "--container-id", default="cairnmq", show_default=True, help="What the broker is called; differs between routers."
)
@_option("--container-size", 1 << 20, SizeRange(1, 1 << 30), "Bytes, at least 512 KiB; for a new store.")
@_option("--initial-containers", 2, click.IntRange(1, 10_000), "How many a new journal begins with.")
@_option("--max-write-buffers", 10, click.IntRange(0), "Blocks that may wait for the disk; 0 for any number.")
@_option("--checkpoint-interval", 64 << 20, SizeRange(0), "Bytes of log between checkpoints; 0: only at the end.")
@click.option(
    "--memory-limit",
    default="256M",
    show_default=True,
    type=SIZE_OR_NONE,
    help="Content of waiting messages to hold in memory; the rest of a deep queue stays on the disk.",
)
@click.option(
    "--buffer-limit",
    default="64M",
    show_default=True,
    type=SIZE,
    help="Content on its way between sockets and queues; connections wait when it is reached.",
)
@click.option("--archive-dir", type=LocalDirectory(file_okay=False), help="Keep there what leaves the journal.")
@click.option("--archive-max-size", type=SIZE, help="Like 20G: then the oldest is removed. Any size, by default.")
@click.option("--archive-max-age", type=AGE, help="Like 7d or 12h: what is older is removed. Any age, by default.")
@click.option("--journal-acquisitions", is_flag=True, help="Write down who was handed which messages, for `trace`.")
@click.option("--sidecars", is_flag=True, help="Keep the heads of all records as Parquet, for analysis.")
@click.option("--sidecar-dir", type=LocalDirectory(file_okay=False), help="Where; in the store, by default.")
@click.option("--sidecar-max-size", default="1G", show_default=True, type=SIZE, help="Then the oldest is removed.")
@click.option("--export-to", metavar="DIR", type=LocalDirectory(file_okay=False),
              help="Export all records there, as `cairnmq export` does.")  # fmt: skip
@click.option("--export-format", type=click.Choice(["parquet", "delta", "iceberg"]), help="[default: parquet]")
@click.option("--export-every", default="5m", show_default=True, type=AGE, help="How often.")
@_option("--worker-threads", 1, click.IntRange(1, 64), "Threads that speak AMQP.")
@_option("--max-connections", 5000, click.IntRange(1), "Of all clients.")
@_option("--max-connections-per-user", 1000, click.IntRange(1), "Of one user.")
@click.option(
    "--max-unauthenticated",
    type=click.IntRange(1),
    help="Connections whose clients have not logged in yet; then the most silent one is closed. A tenth of "
    "--max-connections, by default, and at least 64.",
)
@_option("--connection-rate", 1000, click.IntRange(0), "New connections a second from one address; 0: any number.")
@_option("--max-links-per-user", 10_000, click.IntRange(0), "Of one user, on all connections; 0 for any number.")
@_option("--max-queues-per-user", 4_000, click.IntRange(0), "That one user owns; 0 for any number.")
@click.option(
    "--max-durable-bytes-per-user",
    "max_durable_bytes",
    default="0",
    show_default=True,
    type=SIZE_OR_NONE,
    help="Durable content on the queues of one user; 0 for any number.",
)
@_option(
    "--max-messages-per-second-per-user", 0, click.IntRange(0), "That one user may send; 0 for any number."
)
@_option(
    "--max-disk-share", 50, click.IntRange(0, 100), "Percent of the free disk that one user may fill; 0 for all of it."
)
@_option(
    "--max-queues-per-message", 1024, click.IntRange(0), "That a message of one user is put on; 0 for any number."
)
@_option("--max-sessions", 256, click.IntRange(1, 32_768), "Of one connection.")
@_option("--max-links", 1024, click.IntRange(1), "Of one connection; twice as many attached handles close it.")
@_option("--max-unsettled", 100_000, click.IntRange(1), "Messages one receiving link may have without an outcome.")
@_option("--max-transfers", 1 << 20, click.IntRange(1), "Frames one message may come in.")
@_option("--session-window", 64 << 20, SizeRange(1 << 20), "Bytes a session may send before they are read.")
@_option("--credit", 1000, click.IntRange(1, 1_000_000), "Unsettled messages a sender may have.")
@_option("--max-frame-size", 64 << 10, SizeRange(512, 16 << 20), "Bytes.")
@_option("--max-message-size", 256 << 20, SizeRange(1, 1 << 40), "Bytes.")
@_option("--max-selector-size", 2048, SizeRange(1, 16 << 10), "Bytes of a client's selector.")
@_option("--idle-timeout", 60, click.IntRange(0, 86_400), "Seconds of silence a connection survives; 0 for any number.")
@_option("--transaction-timeout", 0, Finite(0), "Seconds until an open transaction is rolled back; 0: never.")
@_option("--max-transactions", 1000, click.IntRange(1, 1_000_000), "Open transactions of a connection.")
@click.option(
    "--max-transaction-size",
    default="256M",
    show_default=True,
    type=SIZE,
    help="Messages in the open transactions of a connection.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics; 0 for any free port.")
@click.option("--metrics-listen", "metrics_host", default="127.0.0.1", show_default=True, help="The address for that.")
@click.option(
    "--metrics-token-file",
    type=click.Path(dir_okay=False),
    help="Serve /metrics only with the bearer token in this file.",
)
@click.option(
    "--failover-server", "failover", multiple=True, metavar="HOST:PORT", help="Another broker to tell clients of."
)
@click.option("--redirect-to", metavar="HOST:PORT", help="Send all clients on to another broker.")
@click.option(
    "--metrics-queues",
    multiple=True,
    default=["*"],
    help="Names of queues and exchanges that have metrics of their own; all, by default.",
)
@click.option("--cluster-name", metavar="NAME", help="Be a member of that cluster: queues are on all its members.")
@click.option(
    "--cluster-size",
    type=click.IntRange(1, 1024),
    help="How many members it has; as many as corosync's nodelist, by default. 1 needs no corosync.",
)
@click.option(
    "--cluster-force",
    is_flag=True,
    help="Those who are here are enough, majority or not: for a start after the others are lost for good.",
)
@click.option(
    "--cluster-silence",
    "cluster_silence_s",
    type=click.FloatRange(3, 3600),
    help="Seconds without a sign of life after which a member is expelled and others lead its queues; 10, by default.",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="[amqps://]HOST:PORT",
    help="Where clients of other members reach this one, if not where it listens.",
)
@click.option(
    "--keep-aside",
    type=click.IntRange(0, 100),
    help="How many times a member keeps what it had when it gets what others have, in STORE/aside; 2, by default.",
)
@_option("--metrics-most-queues", 100, click.IntRange(0, 10_000), "How many have, at most.")
@click.option("--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="The log's.")
@click.option(
    "--audit-file",
    type=click.Path(dir_okay=False),
    help="Append audit records to this file as JSON lines, successful logins included.",
)
@click.option("--audit-logins", is_flag=True, help="Log successful logins, too.")
@click.option("-v", "--verbose", is_flag=True, help="Say more on standard error.")
@reporting_errors
def broker(
    store_dir: str | None,
    store_kind: str,
    connect: str | None,
    catalog: str | None,
    port: int,
    host: str,
    anonymous: int,
    users_file: str | None,
    allow_insecure_auth: bool,
    acl_file: str | None,
    tls_port: int | None,
    tls_only: bool,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    tls_crl: str | None,
    tls_client_certs: str | None,
    auto_create: tuple[str, ...],
    no_auto_create: bool,
    anycast: tuple[str, ...],
    multicast: tuple[str, ...],
    connect_to: tuple[str, ...],
    connect_to_password_file: str | None,
    secrets_dir: str | None,
    link_routes: tuple[str, ...],
    auto_link: tuple[str, ...],
    container_id: str,
    container_size: int,
    initial_containers: int,
    max_write_buffers: int,
    checkpoint_interval: int,
    memory_limit: int,
    buffer_limit: int,
    archive_dir: str | None,
    archive_max_size: int | None,
    archive_max_age: int | None,
    journal_acquisitions: bool,
    sidecars: bool,
    sidecar_dir: str | None,
    sidecar_max_size: int,
    export_to: str | None,
    export_format: str | None,
    export_every: int,
    worker_threads: int,
    max_connections: int,
    max_connections_per_user: int,
    max_unauthenticated: int | None,
    connection_rate: int,
    max_links_per_user: int,
    max_queues_per_user: int,
    max_durable_bytes: int,
    max_messages_per_second_per_user: int,
    max_disk_share: int,
    max_queues_per_message: int,
    max_sessions: int,
    max_links: int,
    max_unsettled: int,
    max_transfers: int,
    session_window: int,
    credit: int,
    max_frame_size: int,
    max_message_size: int,
    max_selector_size: int,
    idle_timeout: int,
    transaction_timeout: float,
    max_transactions: int,
    max_transaction_size: int,
    metrics_port: int | None,
    metrics_host: str,
    metrics_token_file: str | None,
    failover: tuple[str, ...],
    redirect_to: str | None,
    metrics_queues: tuple[str, ...],
    metrics_most_queues: int,
    cluster_name: str | None,
    cluster_size: int | None,
    cluster_force: bool,
    cluster_silence_s: float | None,
    keep_aside: int | None,
    advertise: tuple[str, ...],
    log_format: str,
    audit_file: str | None,
    audit_logins: bool,
) -> None:
    """Run a durable AMQP 1.0 broker until SIGTERM or Ctrl-C."""
    tls = tls_of(tls_port, tls_only, tls_cert, tls_key, tls_ca, tls_client_certs, tls_crl)
    names = users_file is not None or (tls is not None and tls.clients != NONE)
    nameless = lets_nameless_in(host, anonymous, names)
    if store_dir is None and store_kind != "memory":
        raise click.UsageError("Missing option '--store-dir'.")
    if archive_dir is None and (archive_max_size or archive_max_age):
        raise CairnError("--archive-max-size, --archive-max-age", "there is no archive", "name one with --archive-dir")
    targets = targets_of(connect_to, connect_to_password_file or "")
    sys.setswitchinterval(0.0005)  # else the flusher may wait 5 ms for the interpreter after each sync
    gc.freeze()  # what is there now stays
    gc.set_threshold(GARBAGE_AFTER, 20, 20)
    options = BrokerOptions(
        store_dir or "",
        StoreOptions(
            container_size,
            initial_containers,
            max_write_buffers,
            checkpoint_interval,
            archive_dir=archive_dir,
            archive_limits=ArchiveLimits(archive_max_size, archive_max_age),
            acquisitions=journal_acquisitions,
            connect=connect,
            catalog=catalog,
        ),
        RouterOptions(
            host,
            port,
            worker_threads,
            nameless,
            max_connections,
            max_connections_per_user,
            users_file or "",
            allow_insecure_auth,
            tls,
            not tls_only,
            Limits(
                max_frame_size,
                max_message_size,
                max_sessions - 1,
                idle_timeout * 1000,
                max_links,
                max_unsettled,
                max_transfers,
                session_window,
            ),
            AdmissionOptions(
                tuple(host_port("--failover-server", text) for text in failover),
                host_port("--redirect-to", redirect_to) if redirect_to else None,
            ),
            buffer_limit,
            max_unauthenticated or 0,
            connection_rate,
        ),
        () if no_auto_create else auto_create,
        credit,
        memory_limit,
        metrics_port,
        metrics_host,
        TransactionLimits(transaction_timeout, max_transactions, max_transaction_size),
        store_kind,
        acl_file or "",
        quota=Quota(
            0,
            max_links_per_user,
            max_queues_per_user,
            max_durable_bytes,
            max_messages_per_second_per_user,
            max_disk_share,
            max_queues_per_message=max_queues_per_message,
        ),
        metrics_of=QueueChoice(metrics_queues, metrics_most_queues),
        anycast=anycast,
        multicast=multicast,
        sidecars=sidecars_of(store_kind, sidecar_dir, sidecar_max_size) if sidecars or sidecar_dir else None,
        export=export_of(store_kind, export_to, export_format or "", export_every) if export_to else None,
        connect_to=tuple(targets),
        link_routes=tuple(map(parse_link_route, link_routes)),
        auto_links=tuple(auto_links_of(auto_link, targets)),
        secrets_dir=secrets_dir or "",
        metrics_token_file=metrics_token_file or "",
        audit_file=audit_file or "",
        audit_logins=audit_logins,
        container_id=container_id,
        max_selector_bytes=max_selector_size,
        cluster=cluster_of(
            cluster_name, cluster_size, cluster_force, advertise, keep_aside, cluster_silence_s
        ),
    )
    stop = _Stop()
    manager = service_manager(os.environ, os.getpid())
    announce = announcer(log_format)
    progress = RecoveryProgress(SystemClock(), announce if log_format == "json" else None)
    running = RunningBroker(options, progress, manager)
    stop.started = True
    if running.address:
        announce("broker.listening", f"listening on {running.address}")
    if running.tls_address:
        announce("broker.listening-tls", f"listening with TLS on {running.tls_address}")
    announce("broker.storing", f"storing in {'memory' if store_kind == 'memory' else store_dir}")
    if connect is not None:
        announce("broker.wiring", f"{'everything' if store_kind == 'sql' else 'wiring'} in {running.wiring_place}")
    if running.metrics_url:
        announce("broker.metrics", f"metrics at {running.metrics_url}")
    if cluster_name is not None:
        announce("broker.cluster", f"member of cluster {cluster_name}")
    if archive_dir is not None:
        announce("broker.archiving", f"archiving in {archive_dir}")
    if running.sidecar_dir:
        announce("broker.sidecars", f"sidecars in {running.sidecar_dir}")
    if export_to is not None:
        announce("broker.exporting", f"exporting to {export_to}")
    for line in running.recovery.lines():
        announce("broker.recovered", line)
    while not running.wait(0.2) and not stop.asked:
        if stop.reload_asked:
            stop.reload_asked = False
            _reload(running, announce)
    if running.failure is not None:
        raise CairnError("broker", f"stopped: {running.failure}")
    announce("broker.stopping", "shutting down")
    running.stop()
    announce("broker.stopped", "stopped" if store_kind == "memory" else "stopped; everything is on the disk")


def _reload(running: RunningBroker, announce: Announce) -> None:
    try:
        running.reload()
    except CairnError as error:
        announce("broker.reload-failed", f"nothing is reloaded: {error}")
    else:
        announce("broker.reloaded", "reloaded: users, access rules, certificates")


class _Stop:
    """Set by SIGTERM and Ctrl-C. Until the broker has started they end it at once, as a crash would: that is safe.

    SIGHUP has files read again.
    """

    def __init__(self) -> None:
        self.asked = False
        self.reload_asked = False
        self.started = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

        signal.signal(signal.SIGHUP, self._ask_for_reload)

    def _ask_for_reload(self, number: int, frame: FrameType | None) -> None:
        self.reload_asked = True

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.started:
            raise Ended(number)
        self.asked = True
