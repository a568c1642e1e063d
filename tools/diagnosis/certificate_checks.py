"""Checks of the certificates of the TLS listener."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography.x509 import Certificate

from ...base.certificates import invalid_reason, read_certificates
from .report import Finding, Severity

SOON, VERY_SOON = timedelta(days=30), timedelta(days=7)


def check_certificates(path: str, now: datetime) -> Iterator[Finding]:
    """Check the validity of each certificate in the PEM file at *path*."""
    try:
        found = read_certificates(path)
    except OSError as error:
        yield Finding("certificates", Severity.ERROR, f"{path}: {error.strerror}", "correct the option's value")
    except ValueError:
        yield Finding("certificates", Severity.ERROR, f"{path}: no valid PEM certificate", "replace the file")
    else:
        for certificate in found:
            yield _check(path, certificate, now.astimezone(UTC))


def _check(path: str, certificate: Certificate, now: datetime) -> Finding:
    text, remedy = invalid_reason(path, certificate, now)
    if text:
        return Finding("certificates", Severity.ERROR, text, remedy)
    end, name = certificate.not_valid_after_utc, f"{path}: {certificate.subject.rfc4514_string()}"
    if end - now > SOON:
        return Finding("certificates", Severity.OK, f"{name} is valid until {end:%Y-%m-%d}")
    severity = Severity.ERROR if end - now <= VERY_SOON else Severity.WARNING
    text = f"{name} expires on {end:%Y-%m-%d}, in {(end - now).days} days"
    return Finding("certificates", severity, text, "renew it, and reload the broker: `cairnmq ctl reload`")
