"""The TLS contexts of listeners and of connections to other containers. There are no tickets, and no renegotiation."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from ..amqp.connector_target import Target
from ..base.errors import CairnError
from ..base.secret_files import refuse_exposed
from .connections.secured_terminal import reason_of

log = logging.getLogger(__name__)

NONE, OPTIONAL, REQUIRED = "none", "optional", "required"
_CHECKS = {NONE: ssl.CERT_NONE, OPTIONAL: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


@dataclass(frozen=True)
class TlsOptions:
    """The options of TLS listeners, with the paths of the certificates (files in PEM)."""

    cert: str
    """The broker's certificate and, behind it, the intermediate certificates."""
    key: str
    """The private key; may be in the same file."""
    port: int = 5671
    ca: str = ""
    """The file of CA certificates that client certificates are checked against."""
    clients: str = NONE
    """The mode for client certificates: none, optional or required."""
    crl: str = ""
    """The file with revocation lists for client certificates."""


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context that all connections share. Raises `CairnError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    remedy = "give a PEM certificate and its key, unencrypted"
    with _reading(f"--tls-cert {options.cert}, --tls-key {options.key}", remedy):
        context.load_cert_chain(options.cert, options.key, password=_no_password)
    refuse_exposed(f"--tls-key {options.key}", options.key)
    for path in filter(None, (options.ca, options.crl)):
        refuse_exposed(path, path, is_secret=False)
    _report_invalid(options.cert)
    if options.clients != NONE and not options.ca:
        raise CairnError("--tls-client-certs", "they need the CA certificates that sign them", "name one with --tls-ca")
    if options.ca:
        with _reading(f"--tls-ca {options.ca}", "give CAs in PEM"):
            context.load_verify_locations(options.ca)
    if options.crl:
        if not options.ca:
            raise CairnError("--tls-crl", "it needs the CA certificates of its issuer", "name one with --tls-ca")
        with _reading(f"--tls-crl {options.crl}", "give CRLs in PEM"):
            context.load_verify_locations(options.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_mode = _CHECKS[options.clients]
    return context


@contextmanager
def _reading(place: str, remedy: str, reason: str = "can't be used") -> Iterator[None]:
    """Raise `CairnError` for files that OpenSSL can't read."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CairnError(place, f"{reason}: {reason_of(error)}", remedy) from error


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def make_client_context(target: Target) -> ssl.SSLContext:
    """Return the TLS context for connections to *target*. Raises `CairnError`."""
    remedy = "give files in PEM, the key unencrypted"
    with _reading(f"connector {target.name}", remedy, "its ca, cert or key can't be used"):
        context = ssl.create_default_context(cafile=target.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if target.cert:
            context.load_cert_chain(target.cert, target.key, password=_no_password)
            refuse_exposed(f"connector {target.name}: {target.key}", target.key)
            _report_invalid(target.cert)
    return context


def _report_invalid(path: str) -> None:
    """Log the certificates of the file at *path* that peers refuse; other listeners and connections work without it."""
    from ..base.certificates import invalid_reason, read_certificates  # brokers without TLS do without it

    for certificate in read_certificates(path):
        reason, remedy = invalid_reason(path, certificate, datetime.now(UTC))
        if reason:
            log.error("%s; %s", reason, remedy, extra={"event": "tls.certificate-invalid"})
