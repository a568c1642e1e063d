"""The validity of certificates, as the broker and `doctor` report it."""

from __future__ import annotations

from datetime import datetime

from cryptography.x509 import Certificate, load_pem_x509_certificates


def read_certificates(path: str) -> list[Certificate]:
    """Return the certificates of the PEM file at *path*. Raises `OSError` and `ValueError`."""
    with open(path, "rb") as file:
        return load_pem_x509_certificates(file.read())


def invalid_reason(path: str, certificate: Certificate, now: datetime) -> tuple[str, str]:
    """Return why clients refuse *certificate* of the file at *path* now, and the remedy; empty texts if it is valid."""
    end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    name = f"{path}: {certificate.subject.rfc4514_string()}"
    if now >= end:
        return f"{name} expired on {end:%Y-%m-%d}", "renew it, and reload"
    if now < begin:
        return f"{name} is valid only from {begin:%Y-%m-%d %H:%M} UTC on", "check the clock of this machine"
    return "", ""
