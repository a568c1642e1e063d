"""Credentials that clients are checked against: users, certificates, and lists of revoked certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from ..amqp.sasl.server import Login
from ..base.accounts.credentials import Proofs
from ..base.accounts.users import UsersFile
from .admission.revocation import Revoked
from .options import RouterOptions
from .tls import TlsOptions, make_context


class Credentials:
    """The files of users and certificates of one router. Any thread."""

    def __init__(self, options: RouterOptions) -> None:
        """Read the files. Raises `CairnError`."""
        self._tls = options.tls
        self._users = users = UsersFile(options.users_file) if options.users_file else None
        find, proofs = users.find if users else None, Proofs()
        self.login = Login(find, options.anonymous, options.insecure_auth, proofs.prove, options.console_token)
        self.context, self._revoked = _read_tls(options.tls)

    def read_again(self) -> Callable[[], None]:
        """Read all files again; the returned function has them used from then on.

        Raises `CairnError`. Any thread, but one at a time.
        """
        take_users = self._users.read_again() if self._users is not None else None
        context, revoked = _read_tls(self._tls)

        def put_in_place() -> None:
            if take_users is not None:
                take_users()
            self.context, self._revoked = context, revoked

        return put_in_place

    def knows(self, user: str) -> bool:
        """Return True if *user* can log in with a password."""
        return self._users is not None and self._users.knows(user)

    def is_current(self, user: str, stored_key: bytes) -> bool:
        """Return whether *stored_key* is that of the user's present password."""
        return self._users is not None and self._users.key_of(user) == stored_key

    def is_revoked(self, certificate: bytes) -> bool:
        """Return True if a certificate of a client (in DER) is revoked."""
        return self._revoked is not None and self._revoked.has(certificate)


def _read_tls(options: TlsOptions | None) -> tuple[ssl.SSLContext | None, Revoked | None]:
    if options is None:
        return None, None
    context = make_context(options)
    return context, Revoked(options.crl) if options.crl else None
