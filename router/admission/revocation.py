"""The check of client certificates against revocation lists (CRLs, in PEM).

OpenSSL, which has read the same file, checks new handshakes; this module checks existing connections.
"""

from __future__ import annotations

import re

from cryptography import x509

from ...base.errors import CairnError, unreadable

_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class Revoked:
    """The certificates that a file revokes. Never changes; any thread."""

    def __init__(self, path: str) -> None:
        """Raises `CairnError` if the file contains no list, or an invalid one."""
        try:
            with open(path, "rb") as file:
                lists = [x509.load_pem_x509_crl(found) for found in _LIST.findall(file.read())]
        except OSError as error:
            raise unreadable(f"--tls-crl {path}", error, "name a readable file") from error
        except ValueError as error:
            raise CairnError(f"--tls-crl {path}", f"a list can't be read: {error}", "give CRLs in PEM") from error
        if not lists:
            raise CairnError(f"--tls-crl {path}", "it has no revocation list", "give CRLs in PEM")
        self._revoked = {(one.issuer, entry.serial_number) for one in lists for entry in one}

    def has(self, certificate: bytes) -> bool:
        """Return whether *certificate* is revoked: in DER, and verified in its handshake."""
        shown = x509.load_der_x509_certificate(certificate)
        return (shown.issuer, shown.serial_number) in self._revoked
