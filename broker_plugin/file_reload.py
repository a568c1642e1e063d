"""Reloads files while the broker runs: users, access rules, certificates, certificate
revocation lists, and the token of metrics.

All files are read before any of them is applied: if one is invalid, nothing changes. Then new logins, links and
handshakes use the new files. Connections and links that they no longer allow are closed: connections of removed users,
of revoked certificates and of users who may not connect, and links that the rules deny.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..amqp.ports import ConnectionEnd
from ..base.accounts import users
from ..base.accounts.audit import Audit
from ..base.errors import CairnError, MissingStore
from ..broker.access_review import AccessReview
from ..broker.links.context import LinkContext
from ..broker.nodes.access_control import Access
from ..broker.nodes.access_control import read as read_access
from ..broker.users.quotas import Quota, Quotas
from ..management.entities.system import Reloaded
from ..router.outbound_connection import check_targets
from ..router.router import Router
from ..router.tls import make_context
from ..store.contract.registry import find_kind
from ..store.directory.kind import kind_of
from .metrics_server import MetricsServer, read_token
from .options import BrokerOptions, RunTimeOptions

log = logging.getLogger(__name__)
_RELOADED = {"event": "broker.reloaded", "is_announced": True}
_FAILED = {"event": "broker.reload-failed", "is_announced": True}


def quotas_of(access: Access | None, defaults: Quota) -> Quotas:
    """Return the quotas of the file of access rules, over the defaults of the options."""
    return Quotas(defaults=defaults) if access is None else access.quotas.with_defaults(defaults)


def read_files(options: BrokerOptions) -> None:
    """Read the files of users, access rules, certificates, keys and tokens that *options* name. Raises `CairnError`.

    The store, its kind, and the addresses of other brokers are checked, too. Nothing is changed.
    """
    find_kind(options.store_kind)
    if options.requires_store and not kind_of(options.store_dir):
        remedy = "mount or restore it, or start without --require-store to create one"
        raise MissingStore(options.store_dir, "no store is there", remedy)
    if options.router.users_file:
        users.read(options.router.users_file)
    if options.acl_file:
        read_access(options.acl_file)
    if options.router.tls is not None:
        make_context(options.router.tls)
    if options.metrics_token_file:
        read_token(options.metrics_token_file)
    check_targets(options.connect_to)


class FileReload:
    """The reloading of a broker's files. Any thread, but for actions that it posts to the core."""

    def __init__(
        self,
        acl_file: str,
        quota: Quota,
        router: Router,
        links: LinkContext,
        review: AccessReview,
        audit: Audit,
        reread: Callable[[], RunTimeOptions] | None = None,
        metrics: MetricsServer | None = None,
    ) -> None:
        """*reread* returns the present values of the options; None if they do not change."""
        self._audit = audit
        self._reread = reread
        self._metrics = metrics
        self._acl_file = acl_file
        self._quota = quota
        self._router = router
        self._core = links.core
        self._resolver = links.resolver
        self._review = review
        self._lock = threading.Lock()
        review.closing_reason = self._closing_reason

    def reload(self, done: Callable[[Reloaded], None]) -> None:
        """Read all files again; *done* gets the result, on the core.

        Raises `CairnError` if a file is invalid; nothing changes then.
        """
        with self._lock:
            try:
                put_in_place, access, options = self._read()
            except CairnError as error:
                log.error("reload failed, nothing is changed: %s", error, extra=_FAILED)
                raise
            put_in_place()
            if options is not None:
                self._quota = options.quota
                self._audit.log_logins(options.audit_logins)
                self._router.limit_connections(options.max_connections, options.max_connections_per_user)
                options.also()
            self._core.post(self._apply, access, options, done)

    def check(self) -> Reloaded:
        """Read all files again, and change nothing. Raises `CairnError` if a file is invalid."""
        with self._lock:
            options = self._read()[2]
        return Reloaded(0, () if options is None else options.restart_needed)

    def _read(self) -> tuple[Callable[[], None], Access | None, RunTimeOptions | None]:
        fresh = [self._router.credentials.read_again()]
        if self._metrics is not None:
            fresh.append(self._metrics.read_again())

        def put_in_place() -> None:
            for each in fresh:
                each()

        self._router.outbound_connections.check()  # each of their attempts to connect reads their files
        access = read_access(self._acl_file) if self._acl_file else None
        return put_in_place, access, self._reread() if self._reread is not None else None

    def _apply(self, access: Access | None, options: RunTimeOptions | None, done: Callable[[Reloaded], None]) -> None:
        self._resolver.access = access
        self._resolver.reloads += 1
        if options is not None:
            self._resolver.auto_create = options.auto_create
            self._core.memory.limit_bytes = options.memory_limit_bytes
        self._core.users.set_quotas(quotas_of(access, self._quota))
        removed = self._review.revise()
        text = "reloaded users, access rules, certificates and options; closed %d connections and links"
        log.info(text, removed, extra=_RELOADED)
        done(Reloaded(removed, () if options is None else options.restart_needed))

    def _closing_reason(self, end: ConnectionEnd) -> str:
        """Return the reason to close that connection; empty if it may continue."""
        if end.certificate and self._router.credentials.is_revoked(end.certificate):
            return "its certificate was revoked"
        if end.user and end.user != end.certified and not self._router.credentials.knows(end.user):
            return "its user was removed"
        if end.stored_key and not self._router.credentials.is_current(end.user, end.stored_key):
            return "the password of its user was changed"
        return self._resolver.denial_reason_in(end.user)
