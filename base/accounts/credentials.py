"""Stored credentials: salt, keys and iterations of SCRAM-SHA-256, never the password itself.

PLAIN is checked against the same keys. Deriving them from a password is slow on purpose (`ITERATIONS`, about 20 ms);
OpenSSL does it without the interpreter's lock, so that other threads continue meanwhile.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import NamedTuple

from scramp import ScramException, ScramMechanism

ITERATIONS = 50_000
FEWEST_ITERATIONS = 15_000
MOST_ITERATIONS = 10_000_000
KEY_BYTES = 32
FEWEST_SALT_BYTES = 12

SCRAM = ScramMechanism("SCRAM-SHA-256")


class Credentials(NamedTuple):
    """All that is kept of one password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


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
