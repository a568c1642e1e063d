"""Stored credentials: salt, keys and iterations of SCRAM-SHA-256, never the password itself.

PLAIN is checked against the same keys. Deriving them from a password is slow on purpose (`ITERATIONS`, about 20 ms);
OpenSSL does it without the interpreter's lock, so that other threads continue meanwhile.
"""

from __future__ import annotations

import secrets
import threading
import unicodedata
from collections import OrderedDict
from hmac import compare_digest, digest
from typing import NamedTuple

from scramp import ScramException, ScramMechanism
from scramp.utils import saslprep

ITERATIONS = 50_000
FEWEST_ITERATIONS = 15_000
MOST_ITERATIONS = 10_000_000
KEY_BYTES = 32
MOST_PROVED = 10_000
"""Passwords whose digests `Proofs` keeps."""
FEWEST_SALT_BYTES = 12

SCRAM = ScramMechanism("SCRAM-SHA-256")


class Credentials(NamedTuple):
    """All that is kept of one password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def canonical_name(name: str) -> str:
    """Return the spelling of a user's name that logins, rules and limits use: that of SASLprep (RFC 4013).

    A name that SASLprep forbids, such as one with characters newer than Unicode 3.2, is only normalized.
    """
    try:
        return str(saslprep(name))
    except ScramException:
        return unicodedata.normalize("NFKC", name)


def make(password: str, iterations: int = ITERATIONS) -> Credentials:
    """New credentials with a salt of their own. Raises `ValueError` for a password that SASLprep forbids."""
    if not password:
        raise ValueError("it is empty")
    try:
        return Credentials(*SCRAM.make_auth_info(password, iteration_count=iterations))
    except ScramException as error:
        raise ValueError(str(error.args[0])) from error


def prove(password: str, kept: Credentials) -> bool:
    """Return whether *kept* was derived from *password*. The time that it takes does not depend on the result."""
    try:
        made = SCRAM.make_auth_info(password, iteration_count=kept.iterations, salt=kept.salt)
    except ScramException:
        return False
    return compare_digest(made[1], kept.stored_key)


class Proofs:
    """Proofs of passwords, of which repeated ones take microseconds: a fleet of one user logs in at once. Any thread.

    Of a password that was right, a digest is kept, with a key that exists only in this process.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        self._lock = threading.Lock()
        self._proved: OrderedDict[Credentials, bytes] = OrderedDict()

    def prove(self, password: str, kept: Credentials) -> bool:
        """Return whether *kept* was derived from *password*. A wrong password takes as long as in `prove`."""
        shown = digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")
        with self._lock:
            proved = self._proved.get(kept)
        if proved is not None and compare_digest(proved, shown):
            return True
        is_right = prove(password, kept)
        if is_right:
            with self._lock:
                self._proved[kept] = shown
                if len(self._proved) > MOST_PROVED:
                    self._proved.popitem(last=False)
        return is_right
