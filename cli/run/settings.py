"""The options of `cairnmq broker`: the one definition of each.

See `described_options` for what is derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from ...router.tls import NONE, OPTIONAL, REQUIRED
from ..common.described_options import option
from ..common.local_directory import LocalDirectory
from ..common.units import SIZE, SIZE_OR_NONE, Duration, Finite, HttpUrl, SizeRange
from ..options.common_options import LOG_FILE, LOG_FORMAT, LOG_LEVEL, LOGS

NETWORK, TLS, ACCESS, STORE, MEMORY = "Network", "TLS", "Authentication and authorization", "Store", "Memory"
ARCHIVE, QUEUES, LINKS, CLUSTER = "Archive and export", "Queues and transactions", "Other brokers", "Cluster"
CONNECTIONS, USERS, METRICS = "Limits per connection", "Limits per user", "Metrics"
CONSOLE, TRACING = "Web console", "Tracing"
_PORT = click.IntRange(0, 65535)
_FILE = click.Path(dir_okay=False)
_DIRECTORY = LocalDirectory(file_okay=False)
_COUNT_OR_ANY = click.IntRange(0)


@dataclass(frozen=True)
class BrokerSettings:
    """The values of all options. Names are those of the options."""

    # fmt: off
    listen: str = option(NETWORK, "Address to listen on.", default="127.0.0.1")
    port: int = option(NETWORK, "AMQP port; 0: any free port.", _PORT, default=5672)
    worker_threads: int = option(NETWORK, "Threads for AMQP connections.", click.IntRange(1, 64), default=1)
    max_connections: int = option(NETWORK, "Connections of all clients.", click.IntRange(1), default=10_000,
        can_reload=True)
    amqp091: bool = option(NETWORK, "Also accept clients of AMQP 0-9-1 without TLS (in development).")
    max_unauthenticated: int | None = option(NETWORK,
        "Connections before login; others wait in the backlog.  [default: half of --max-connections, at least 64]",
        click.IntRange(1))
    connection_rate: int = option(NETWORK, "New connections per second from one address; 0: no limit.", _COUNT_OR_ANY,
        default=1000)
    idle_timeout: float = option(NETWORK, "Close connections after this idle time; 0: never.", Duration(0, 86_400),
        default="60s")
    failover_server: tuple[str, ...] = option(NETWORK, "Broker that clients use when this one is unreachable.",
        metavar="HOST:PORT")
    redirect_to: str | None = option(NETWORK, "Redirect all clients to another broker.", metavar="HOST:PORT")
    container_id: str = option(NETWORK, "AMQP container ID; unique among connected brokers.", default="cairnmq")
    tls_port: int | None = option(TLS, "Port for AMQP over TLS; 0: any free port.", _PORT)
    tls_only: bool = option(TLS, "Don't listen without TLS.")
    tls_cert: str | None = option(TLS, "Certificate chain of the broker (PEM).", _FILE)
    tls_key: str | None = option(TLS, "Private key (PEM).  [default: in --tls-cert]", _FILE)
    tls_ca: str | None = option(TLS, "CA certificates for client certificates (PEM).", _FILE)
    tls_crl: str | None = option(TLS, "Revocation lists for client certificates (PEM).", _FILE)
    tls_client_certs: str | None = option(TLS,
        "Whether clients present certificates.  [default: optional with --tls-ca, otherwise none]",
        click.Choice([NONE, OPTIONAL, REQUIRED]))
    anonymous: int = option(ACCESS,
        "Admit anonymous clients; give it twice to listen on an address other than loopback.", count=True)
    users_file: str | None = option(ACCESS, "File of users and passwords; see `cairnmq users`.", _FILE)
    allow_insecure_auth: bool = option(ACCESS, "Accept plain-text passwords (PLAIN) without TLS.")
    acl_file: str | None = option(ACCESS, "File of access rules (TOML).  [default: everything is allowed]", _FILE)
    audit_file: str | None = option(ACCESS,
        "Append audit records to this file as JSON lines, including successful logins.", _FILE)
    audit_logins: bool = option(ACCESS, "Log successful logins.", can_reload=True)
    store_dir: str | None = option(STORE, "Data directory; required unless --store memory.", _DIRECTORY)
    require_store: bool = option(STORE, "Don't create a store: fail if --store-dir has none.")
    store: str = option(STORE,
        "journal: messages in a journal; sql: messages in the database of the wiring; memory: messages are lost when "
        "the broker stops; or a kind that an installed package provides.", default="journal", metavar="KIND")
    connect: str | None = option(STORE,
        "PostgreSQL server for the wiring, instead of SQLite in the data directory, for example "
        "postgresql+psycopg://user@host/database. Keep the password in ~/.pgpass or in the environment.", metavar="URL",
        is_secret=True)
    catalog: str | None = option(STORE,
        "Namespace in that database; stores can share a database.  [default: CairnStore]", metavar="NAME")
    container_size: int = option(STORE, "Size of a journal container in a new store, at least 512K.",
        SizeRange(1, 1 << 30), default="1M")
    initial_containers: int = option(STORE, "Containers of a new journal.", click.IntRange(1, 10_000), default=2)
    max_write_buffers: int = option(STORE, "Journal blocks that may wait for the disk; 0: no limit.", _COUNT_OR_ANY,
        default=10)
    checkpoint_interval: int = option(STORE, "Journal size between checkpoints; 0: only at shutdown.", SizeRange(0),
        default="64M")
    journal_acquisitions: bool = option(STORE, "Record which messages were sent to which consumers, for `trace`.")
    memory_limit: int = option(MEMORY, "Content of queued messages in memory; the rest stays on disk.", SIZE_OR_NONE,
        default="256M", can_reload=True)
    buffer_limit: int = option(MEMORY, "Content between sockets and queues; connections wait beyond it.", SIZE,
        default="64M")
    archive_dir: str | None = option(ARCHIVE, "Archive containers there that leave the journal.", _DIRECTORY)
    archive_max_size: int | None = option(ARCHIVE,
        "Remove the oldest archived containers beyond this size.  [default: no limit]", SIZE)
    archive_max_age: float | None = option(ARCHIVE, "Remove archived containers that are older.  [default: no limit]",
        Duration(0, min_open=True))
    sidecars: bool = option(ARCHIVE, "Keep a column index (Parquet) of all records, for analysis.")
    sidecar_dir: str | None = option(ARCHIVE, "Directory of the column index.  [default: in --store-dir]", _DIRECTORY)
    sidecar_max_size: int = option(ARCHIVE, "Size of the column index.", SIZE, default="1G")
    export_to: str | None = option(ARCHIVE, "Export all records there, as `cairnmq export` does.", _DIRECTORY,
        metavar="DIR")
    export_format: str | None = option(ARCHIVE, "Format of the export.  [default: parquet]",
        click.Choice(["parquet", "delta", "iceberg"]))
    export_every: float = option(ARCHIVE, "Interval of exports.", Duration(1), default="5m")
    auto_create: tuple[str, ...] = option(QUEUES, "Name pattern of queues that are created on first use.  [default: *]",
        default=["*"], metavar="PATTERN", can_reload=True)
    no_auto_create: bool = option(QUEUES, "Don't create queues on first use.", can_reload=True)
    anycast: tuple[str, ...] = option(QUEUES, "Address pattern for pass-through to one receiver, without a queue.",
        metavar="PATTERN")
    multicast: tuple[str, ...] = option(QUEUES, "Address pattern for pass-through to all receivers, without a queue.",
        metavar="PATTERN")
    credit: int = option(QUEUES, "Unsettled messages per sender.", click.IntRange(1, 1_000_000), default=1000)
    max_message_size: int = option(QUEUES, "Size of a message.", SizeRange(1, 1 << 40), default="256M")
    max_selector_size: int = option(QUEUES, "Size of a selector.", SizeRange(1, 16 << 10), default="2K")
    transaction_timeout: float = option(QUEUES, "Roll back transactions that are open for this time; 0: never.",
        Duration(0), default="0s")
    max_transactions: int = option(QUEUES, "Open transactions per connection.", click.IntRange(1, 1_000_000),
        default=1000)
    max_transaction_size: int = option(QUEUES, "Content in the open transactions of a connection.", SIZE,
        default="256M")
    max_sessions: int = option(CONNECTIONS, "Sessions.", click.IntRange(1, 32_768), default=256)
    max_links: int = option(CONNECTIONS, "Links; twice as many attached handles close the connection.",
        click.IntRange(1), default=1024)
    max_unsettled: int = option(CONNECTIONS, "Messages without an outcome per receiving link.", click.IntRange(1),
        default=100_000)
    max_transfers: int = option(CONNECTIONS, "Frames per message.", click.IntRange(1), default=1 << 20)
    max_frame_size: int | None = option(CONNECTIONS,
        "Size of a frame.  [default: a 1,024th of --memory-limit, from 4K to 64K]", SizeRange(512, 16 << 20))
    session_window: int = option(CONNECTIONS, "Content that a session may send before it is read.", SizeRange(1 << 20),
        default="64M")
    max_connections_per_user: int = option(USERS, "Connections.", click.IntRange(1), default=5000, can_reload=True)
    max_links_per_user: int = option(USERS, "Links on all connections; 0: no limit.", _COUNT_OR_ANY, default=10_000,
        can_reload=True)
    max_queues_per_user: int = option(USERS, "Queues that a user owns; 0: no limit.", _COUNT_OR_ANY, default=4_000,
        can_reload=True)
    max_durable_bytes_per_user: int = option(USERS, "Durable content on the queues of a user; 0: no limit.",
        SIZE_OR_NONE, default="0", can_reload=True)
    max_messages_per_second_per_user: int = option(USERS, "Messages per second; 0: no limit.", _COUNT_OR_ANY, default=0,
        can_reload=True)
    max_disk_share: int = option(USERS, "Percentage of the free disk space; 0: no limit.", click.IntRange(0, 100),
        default=50, can_reload=True)
    max_queues_per_message: int = option(USERS, "Queues that one message is routed to; 0: no limit.", _COUNT_OR_ANY,
        default=1024, can_reload=True)
    connect_to: tuple[str, ...] = option(LINKS,
        "Keep a connection to another AMQP container: amqp[s]://[user@]host[:port][?name=NAME&role=inter-router&...]. "
        "The password is in --connect-to-password-file, or where password-file or password-env of the URL point.",
        metavar="URL", is_secret=True)
    connect_to_password_file: str | None = option(LINKS, "Password for users of --connect-to without another one.",
        _FILE)
    secrets_dir: str | None = option(LINKS, "Passwords and certificates for `ctl connectors create`.",
        click.Path(file_okay=False))
    link_route: tuple[str, ...] = option(LINKS,
        "Route links to these addresses over a connection of --connect-to. Suffixes: ,send ,receive ,strip=PREFIX.",
        metavar="PATTERN=NAME")
    auto_link: tuple[str, ...] = option(LINKS, "Bridge a queue to an address over a connection of --connect-to.",
        metavar="in|out:ADDRESS@NAME[:EXTERNAL]")
    cluster_name: str | None = option(CLUSTER, "Join this cluster; queues are replicated.", metavar="NAME")
    cluster_size: int | None = option(CLUSTER,
        "Number of members; 1 needs no corosync.  [default: size of corosync's nodelist]", click.IntRange(1, 1024))
    cluster_force: bool = option(CLUSTER, "Start without quorum, after the other members are lost permanently.")
    cluster_silence: float | None = option(CLUSTER, "Expel members that are silent for this time.  [default: 10s]",
        Duration(3, 3600))
    advertise: tuple[str, ...] = option(CLUSTER, "Address for clients of other members, if not that of the listener.",
        metavar="[amqps://]HOST:PORT")
    keep_aside: int | None = option(CLUSTER,
        "Divergent states to keep in STORE/aside after state transfers.  [default: 2]", click.IntRange(0, 100))
    metrics_port: int | None = option(METRICS, "Serve Prometheus metrics; 0: any free port.", _PORT)
    metrics_listen: str = option(METRICS, "Address of the metrics server.", default="127.0.0.1")
    metrics_token_file: str | None = option(METRICS, "Require the bearer token in this file for /metrics.", _FILE)
    metrics_queues: tuple[str, ...] = option(METRICS,
        "Name pattern of queues and exchanges with own metrics.  [default: *]", default=["*"], metavar="PATTERN")
    metrics_most_queues: int = option(METRICS, "Queues, and exchanges, with own metrics.", click.IntRange(0, 10_000),
        default=100)
    http_port: int | None = option(CONSOLE, "Serve the web console and the HTTP API; 0: any free port.", _PORT)
    http_listen: str = option(CONSOLE, "Address of the web console; HTTPS with --tls-cert unless loopback.",
        default="127.0.0.1")
    http_host: tuple[str, ...] = option(CONSOLE, "Host name that browsers use for the web console.", metavar="NAME")
    http_also: tuple[str, ...] = option(CONSOLE, "Store of another broker, where traces continue.", _DIRECTORY)
    http_insecure: bool = option(CONSOLE, "Serve HTTP without TLS on an address other than loopback.")
    trace_to: str | None = option(TRACING, "OTLP/HTTP endpoint that gets spans of messages with a sampled traceparent, "
        "for example http://localhost:4318/v1/traces.", HttpUrl("http://localhost:4318/v1/traces"), metavar="URL",
        is_secret=True)
    trace_ratio: float = option(TRACING, "Share of messages without a traceparent to trace, too.",
        Finite(0, 1), default=0.0)
    trace_limit: int = option(TRACING, "Traced messages per second.", click.IntRange(1, 100_000), default=1000)
    log_level: str = option(LOGS, LOG_LEVEL["help"], LOG_LEVEL["type"], default="info", can_reload=True,
        is_common=True)
    log_format: str = option(LOGS, LOG_FORMAT["help"], LOG_FORMAT["type"], default="text", is_common=True)
    log_file: str | None = option(LOGS, LOG_FILE["help"], _FILE, is_common=True)
    verbose: bool = option(LOGS, "Short for --log-level debug.", short=["-v"])
