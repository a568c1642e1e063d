"""Combinations of options of `cairnmq broker`, and those that exclude each other.

All raise `CairnError` with the option, the reason and the remedy.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from importlib.util import find_spec

from ...base.errors import CairnError
from ...base.extras import install_hint
from ...broker_plugin.options import ClusterOptions, ExportOptions, Places, SidecarOptions
from ...router.tls import NONE, OPTIONAL, TlsOptions
from ..common.units import host_port

_AMQPS = "amqps://"


def lets_nameless_in(host: str, said: int, names: bool) -> bool:
    """Return whether anonymous clients are admitted: with `--anonymous`, and without any users, on loopback."""
    if names and not said:
        return False
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:
            raise CairnError(f"--listen {host}", "unknown host name", "name an address of this machine") from error
    if not loopback and said < 2:
        raise CairnError(
            f"--listen {host}",
            "everyone who reaches this address could read and write all messages",
            "say --anonymous twice if that is meant, or who can log in with --users-file, or listen on 127.0.0.1",
        )
    return True


def sidecars_of(store_kind: str, directory: str | None, most_bytes: int) -> SidecarOptions:
    """Of a broker that makes them. *directory*: None for the store's own."""
    if store_kind != "journal":
        raise CairnError("--sidecars", f"a store of kind {store_kind} has no journal", "leave it out")
    if find_spec("pyarrow") is None:
        raise CairnError("--sidecars", "pyarrow is not installed", install_hint("columns"))
    return SidecarOptions(directory or "", most_bytes)


def export_of(store_kind: str, target: str, kind: str, every_s: int) -> ExportOptions:
    """Of a broker that exports to *target*. *kind*: empty for what that is already."""
    if store_kind != "journal":
        raise CairnError("--export-to", f"a store of kind {store_kind} has no journal", "leave it out")
    needs = {"delta": ("deltalake", "delta"), "iceberg": ("pyiceberg", "iceberg")}
    for module, extra in filter(None, (("pyarrow", "columns"), needs.get(kind))):
        if find_spec(module) is None:
            raise CairnError("--export-to", f"{module} is not installed", install_hint(extra))
    return ExportOptions(target, kind, every_s)


def tls_of(
    port: int | None,
    only: bool,
    cert: str | None,
    key: str | None,
    ca: str | None,
    clients: str | None,
    crl: str | None,
) -> TlsOptions | None:
    """Return the TLS options of a broker; None without TLS. Raises `CairnError`."""
    if port is None:
        if only or cert or key or ca or clients or crl:
            raise CairnError("--tls-...", "TLS is to be spoken, and at no port", "give one with --tls-port")
        return None
    if cert is None:
        raise CairnError("--tls-port", "there is no certificate to show", "name one with --tls-cert")
    return TlsOptions(cert, key or cert, port, ca or "", clients or (OPTIONAL if ca else NONE), crl or "")


def cluster_of(
    name: str | None,
    size: int | None,
    force: bool,
    advertise: Sequence[str],
    keep_aside: int | None,
    silence_s: float | None,
) -> ClusterOptions | None:
    """Return the cluster options of a broker; None without a cluster. Raises `CairnError`.

    *size*: None for the size that corosync reports.
    """
    if name is None:
        if size is not None or force or advertise or keep_aside is not None or silence_s is not None:
            option = "--advertise" if advertise else "--keep-aside" if keep_aside is not None else "--cluster-..."
            raise CairnError(option, "no cluster is named", "name one with --cluster-name")
        return None
    plain = tuple([host_port("--advertise", text) for text in advertise if not text.startswith(_AMQPS)])
    tls = tuple([host_port("--advertise", text[len(_AMQPS) :]) for text in advertise if text.startswith(_AMQPS)])
    kept = ClusterOptions.keep_aside if keep_aside is None else keep_aside
    silence = ClusterOptions.silence_s if silence_s is None else silence_s
    return ClusterOptions(name, size or 0, force, Places(plain, tls) if advertise else None, kept, silence)
