"""The options of a broker, made of the settings of `cairnmq broker`.

Combinations that exclude each other raise `InvalidOption` with the option, the reason and the remedy.
"""

from __future__ import annotations

import socket
from importlib.util import find_spec

import click

from ...amqp.links.events import Limits
from ...base.errors import CairnError, InvalidOption
from ...base.extras import install_hint
from ...broker_plugin.file_reload import read_files
from ...broker_plugin.options import (
    ArchiveLimits,
    BrokerOptions,
    ClientAddresses,
    ClusterOptions,
    ExportOptions,
    QueueChoice,
    Quota,
    RouterOptions,
    SidecarOptions,
    StoreOptions,
    TraceOptions,
    TransactionLimits,
    parse_link_route,
)
from ...router.admission.admission import AdmissionOptions
from ...router.tls import NONE, OPTIONAL, REQUIRED, TlsOptions
from ..common.statuses import invalid_options
from ..common.units import host_port
from .connect_to import auto_links_of, targets_of
from .console import is_loopback
from .settings import BrokerSettings

_AMQPS = "amqps://"
_EXTRAS = {"delta": ("deltalake", "delta"), "iceberg": ("pyiceberg", "iceberg")}
_LEAST_FRAME_BYTES, _MOST_FRAME_BYTES = 4 << 10, 64 << 10
_NAME_ONE = "name an address of this machine"
_FRAMES_IN_MEMORY = 1024
_DIRECTORY = "./data"


def checked_options(given: BrokerSettings) -> BrokerOptions:
    """Return the options of the broker.

    The files of users, access rules, certificates, keys and tokens are read; nothing is changed. Raises
    `InvalidOption`, also for unusable files, and another `CairnError` for a host name that is unknown at present.
    """
    router = _router_options(given)
    if not given.container_id.isprintable():
        place = f"--container-id {given.container_id!r}"
        raise InvalidOption(place, "invalid UTF-8, or a character that can't be printed", "give a printable name")
    with invalid_options():
        targets = targets_of(given.connect_to, given.connect_to_password_file or "")
        link_routes = tuple(map(parse_link_route, given.link_route))
        auto_links = tuple(auto_links_of(given.auto_link, targets))
    options = BrokerOptions(
        given.store_dir or "", _store_options(given), router, auto_create_of(given), given.credit, given.memory_limit,
        given.metrics_port, given.metrics_listen,
        TransactionLimits(given.transaction_timeout, given.max_transactions, given.max_transaction_size), given.store,
        given.acl_file or "", quota=quota_of(given),
        metrics_of=QueueChoice(given.metrics_queues, given.metrics_most_queues), anycast=given.anycast,
        multicast=given.multicast, sidecars=_sidecars_of(given),
        requires_store=given.require_store and given.store != "memory", export=_export_of(given),
        connect_to=tuple(targets), link_routes=link_routes, auto_links=auto_links, secrets_dir=given.secrets_dir or "",
        metrics_token_file=given.metrics_token_file or "", audit_file=given.audit_file or "",
        audit_logins=given.audit_logins, container_id=given.container_id, max_selector_bytes=given.max_selector_size,
        cluster=_cluster_of(given),
        trace=TraceOptions(given.trace_to, given.trace_ratio, given.trace_limit) if given.trace_to else None,
    )  # fmt: skip
    with invalid_options():
        read_files(options)
    return options


def auto_create_of(given: BrokerSettings) -> tuple[str, ...]:
    """Return the patterns of names of queues that are created on first use."""
    return () if given.no_auto_create else given.auto_create


def quota_of(given: BrokerSettings) -> Quota:
    """Return the default quota of a user."""
    return Quota(
        0, given.max_links_per_user, given.max_queues_per_user, given.max_durable_bytes_per_user,
        given.max_messages_per_second_per_user, given.max_disk_share,
        max_queues_per_message=given.max_queues_per_message,
    )  # fmt: skip


def _store_options(given: BrokerSettings) -> StoreOptions:
    if given.store_dir is None and given.store != "memory":
        if given.store not in ("journal", "sql"):
            reason = "this is the kind of the store, and no directory is named"
            raise InvalidOption(f"--store {given.store}", reason, f"give --store-dir, such as --store-dir {_DIRECTORY}")
        raise click.UsageError(
            "Missing option '--store-dir' (CAIRNMQ_STORE_DIR, or store-dir in the file): name the data directory, such "
            f"as --store-dir {_DIRECTORY}, or run `cairnmq dev` for a trial."
        )
    if given.archive_dir is None and (given.archive_max_size or given.archive_max_age):
        place = "--archive-max-size, --archive-max-age"
        raise InvalidOption(place, "there is no archive", "name one with --archive-dir")
    return StoreOptions(
        given.container_size, given.initial_containers, given.max_write_buffers, given.checkpoint_interval,
        archive_dir=given.archive_dir, archive_limits=ArchiveLimits(given.archive_max_size, given.archive_max_age),
        acquisitions=given.journal_acquisitions, connect=given.connect, catalog=given.catalog,
    )  # fmt: skip


def _router_options(given: BrokerSettings) -> RouterOptions:
    tls = _tls_of(given)
    has_names = given.users_file is not None or (tls is not None and tls.clients != NONE)
    if has_names and given.users_file is None and not given.anonymous:
        _require_certificates(given, tls)
    return RouterOptions(
        given.listen,
        given.port,
        given.worker_threads,
        admits_anonymous(given.listen, given.anonymous, has_names),
        given.max_connections,
        given.max_connections_per_user,
        given.users_file or "",
        given.allow_insecure_auth,
        tls,
        not given.tls_only,
        Limits(
            given.max_frame_size or _frame_bytes(given.memory_limit),
            given.max_message_size,
            given.max_sessions - 1,
            round(given.idle_timeout * 1000),
            given.max_links,
            given.max_unsettled,
            given.max_transfers,
            given.session_window,
        ),
        AdmissionOptions(
            tuple(host_port("--failover-server", text) for text in given.failover_server),
            host_port("--redirect-to", given.redirect_to) if given.redirect_to else None,
        ),
        given.buffer_limit,
        given.max_unauthenticated or 0,
        given.connection_rate,
        amqp091=given.amqp091,
    )


def _require_certificates(given: BrokerSettings, tls: TlsOptions | None) -> None:
    """Refuse ports at which clients without a certificate would be offered no SASL mechanism (5.3.3.1)."""
    if not given.tls_only or tls is None or tls.clients != REQUIRED:
        raise InvalidOption(
            f"--tls-ca {given.tls_ca or ''}".rstrip(),
            "clients without a certificate could not log in",
            "name users with --users-file, or give --anonymous, or --tls-only with --tls-client-certs required",
        )


def _frame_bytes(memory_limit_bytes: int) -> int:
    """Return the default size of a frame: proton keeps a buffer of that size for each unfinished message."""
    return max(_LEAST_FRAME_BYTES, min(memory_limit_bytes // _FRAMES_IN_MEMORY, _MOST_FRAME_BYTES))


def admits_anonymous(host: str, said: int, has_names: bool) -> bool:
    """Return whether anonymous clients are admitted: with `--anonymous`, and without any users, on loopback."""
    if has_names and not said:
        return False
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        address, _, port = host.partition(":")
        remedy = f"give the port as --listen {address} --port {port}" if port.isdecimal() else _NAME_ONE
        raise CairnError(f"--listen {host}", "unknown host name", remedy) from error
    if not is_loopback(host) and said < 2:
        raise InvalidOption(
            f"--listen {host}",
            "everyone who reaches this address could read and write all messages",
            "give --anonymous twice to allow it, or name users with --users-file, or listen on 127.0.0.1",
        )
    return True


def _sidecars_of(given: BrokerSettings) -> SidecarOptions | None:
    if not given.sidecars and not given.sidecar_dir:
        return None
    _require_journal("--sidecars", given.store)
    _require_module("--sidecars", "pyarrow", "columns")
    return SidecarOptions(given.sidecar_dir or "", given.sidecar_max_size)


def _export_of(given: BrokerSettings) -> ExportOptions | None:
    if not given.export_to:
        return None
    _require_journal("--export-to", given.store)
    _require_module("--export-to", "pyarrow", "columns")
    if given.export_format in _EXTRAS:
        _require_module("--export-to", *_EXTRAS[given.export_format])
    return ExportOptions(given.export_to, given.export_format or "", int(given.export_every))


def _require_journal(option: str, store: str) -> None:
    if store != "journal":
        raise InvalidOption(option, f"a store of kind {store} has no journal", "leave it out")


def _require_module(option: str, module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise InvalidOption(option, f"{module} is not installed", install_hint(extra))


def _tls_of(given: BrokerSettings) -> TlsOptions | None:
    names = (given.tls_cert, given.tls_key, given.tls_ca, given.tls_client_certs, given.tls_crl)
    if given.tls_port is None:
        if given.tls_only or any(names):
            raise InvalidOption("--tls-...", "TLS is to be spoken, and at no port", "give one with --tls-port")
        return None
    if given.tls_cert is None:
        raise InvalidOption("--tls-port", "there is no certificate to show", "name one with --tls-cert")
    clients = given.tls_client_certs or (OPTIONAL if given.tls_ca else NONE)
    key = given.tls_key or given.tls_cert
    return TlsOptions(given.tls_cert, key, given.tls_port, given.tls_ca or "", clients, given.tls_crl or "")


def _cluster_of(given: BrokerSettings) -> ClusterOptions | None:
    advertise, kept, silence_s = given.advertise, given.keep_aside, given.cluster_silence
    if given.cluster_name is None:
        if given.cluster_size is not None or given.cluster_force or advertise or kept is not None or silence_s:
            option = "--advertise" if advertise else "--keep-aside" if kept is not None else "--cluster-..."
            raise InvalidOption(option, "no cluster is named", "name one with --cluster-name")
        return None
    plain = tuple([host_port("--advertise", text) for text in advertise if not text.startswith(_AMQPS)])
    tls = tuple([host_port("--advertise", text[len(_AMQPS) :]) for text in advertise if text.startswith(_AMQPS)])
    return ClusterOptions(
        given.cluster_name, given.cluster_size or 0, given.cluster_force,
        ClientAddresses(plain, tls) if advertise else None, ClusterOptions.keep_aside if kept is None else kept,
        silence_s or ClusterOptions.silence_s,
    )  # fmt: skip
