"""A running broker: the store, the broker and the router, joined."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ..base.accounts import audit
from ..base.accounts.trusted_logins import FILE_NAME
from ..base.callbacks import ignore
from ..base.clock import SystemClock
from ..base.errors import CairnError
from ..broker.broker import Broker
from ..broker.nodes.access_control import read as read_access
from ..broker.passthrough.sender import SESSION_WINDOW_BYTES
from ..cluster.nodes.failover_addresses import ClientAddresses
from ..management.entities.system import Reloaded
from ..management.protocol.request import CONFLICT, OK
from ..management.serve import sampler_of, serve
from ..router.kernel.core import Core
from ..router.options import RouterOptions
from ..router.outbound_connection import check_targets
from ..router.router import Router
from ..store.contract.options import Progress
from ..store.contract.registry import find_kind
from ..store.journaled.discarded_state import Aside
from ..store.journaled.metrics import measure
from ..store.journaled.store import JournalStore
from .account_changes import AccountChanges
from .broker_exposition import BROKER_FAMILIES, Figures
from .cluster_exposition import CLUSTER_FAMILIES, ClusterType
from .exposition import FAMILIES, FamilyCollector
from .file_reload import FileReload, quotas_of
from .health import Health
from .helper_process import helper_processes, sidecar_dir
from .helper_thread import HelperThread
from .membership import ClusterMembership
from .metrics_server import MetricsServer
from .options import BrokerOptions, RunTimeOptions
from .service_manager import ServiceManager
from .span_export import span_export
from .traces import traced_drivers

log = logging.getLogger(__name__)
_RELOAD = "RELOAD", "broker", "broker"


class RunningBroker:
    """A broker in this process, with its own threads. Any thread."""

    def __init__(
        self,
        options: BrokerOptions,
        progress: Progress | None = None,
        manager: ServiceManager | None = None,
        reread: Callable[[], RunTimeOptions] | None = None,
    ) -> None:
        """Recover the store and start. Raises `CairnError`; nothing runs then. *manager*: the service manager."""
        clock = SystemClock()
        check_targets(options.connect_to)
        open_store = find_kind(options.store_kind)
        access = read_access(options.acl_file) if options.acl_file else None
        self._span_export = span_export(options.trace, options.container_id)
        tracing = None if self._span_export is None else self._span_export.tracing
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._stopping, self._is_stopped = threading.Lock(), False
        self._health = Health()
        self._end_audit_file = audit.open_file(options.audit_file) if options.audit_file else None
        self._audit = audit.Audit(clock, logins=options.audit_logins)
        self._metrics: MetricsServer | None = None
        with ExitStack() as undo:
            undo.callback(self._stop_audit)
            self._router = Router(_fitting(options), clock, options.container_id, self._audit, _trusted_path(options))
            undo.callback(self._router.stop)
            if options.metrics_port is not None:
                self._metrics = MetricsServer(
                    options.metrics_host, options.metrics_port, self._health, options.metrics_token_file
                )
                undo.callback(self._metrics.stop)
            self._store, self.recovery = open_store(options.store_dir, clock, options.store, progress)
            undo.pop_all()
        self.address, self.tls_address = self._router.address, self._router.tls_address
        """The addresses of the listeners, as host:port; empty without one."""
        self.port, self.tls_port = self._router.port, self._router.tls_port
        self._listening = f"listening on {self.address or self.tls_address}"
        """The status line for the service manager."""
        self.wiring_place = self._store.wiring_place
        """The location of the wiring: a file or a server."""
        self.metrics_url = "" if self._metrics is None else self._metrics.url
        self.sidecar_dir = sidecar_dir(options)
        """The directory of the column indexes, as it is used; empty for none."""
        self._core = Core(ignore, self._fail)
        self._post = self._core.submit
        self._reader = HelperThread("cairnmq-reader")
        self._compiler = HelperThread("cairnmq-selectors")
        self._membership = None
        if options.cluster is not None:
            alike = {
                "--anycast": options.anycast,
                "--multicast": options.multicast,
                "--cluster-silence": (f"{options.cluster.silence_s:g}",),
            }
            places = ClientAddresses(*self._router.places)
            aside = None
            if options.cluster.keep_aside and isinstance(self._store, JournalStore):
                place = options.store
                aside = Aside(options.store_dir, clock, options.cluster.keep_aside, place.connect, place.catalog)
            self._membership = ClusterMembership(options.cluster, clock, self._core.fail, alike, places, aside)
            self._membership.core.addresses.on_change = lambda others: self._router.admission.failover_to(*others)
        self._broker = Broker(
            self._store, clock, self._post, self._reader.submit, auto_create=options.auto_create,
            credit=options.credit, memory_limit_bytes=options.memory_limit_bytes, access=access,
            quotas=quotas_of(access, options.quota), vouch=options.router.knows_users,
            transaction_limits=options.transactions, anycast=options.anycast, multicast=options.multicast,
            container_id=options.container_id, cluster=None if self._membership is None else self._membership.assembly,
            compile_on=self._compiler.submit, max_selector_bytes=options.max_selector_bytes,
            notes=self._store if options.store.acquisitions and isinstance(self._store, JournalStore) else None,
        )  # fmt: skip
        self._core.finish_step = self._broker.steps.finish
        self._manager = manager
        links, review = self._broker.links, self._broker.review
        self._file_reload = FileReload(
            options.acl_file, options.quota, self._router, links, review, self._audit, reread, self._metrics
        )
        own_types = () if self._membership is None else (ClusterType(self._membership.core),)
        path = options.router.users_file
        accounts = AccountChanges(path, bool(options.acl_file), self._reader.submit, self._post) if path else None
        denial_reason = self._broker.resolver.denial_reason
        reload = partial(self._reader.submit, self._reload_and_report)
        sampler = sampler_of(self._broker.parts)
        serve(self._broker.parts, denial_reason, reload, own_types, self._audit, accounts, sampler)
        room_again = self._broker.sender_credit.grant_withheld
        self._store.start(
            partial(self._post, self._broker.steps.durable), self._core.fail, partial(self._post, room_again)
        )
        remote = self._broker.remote
        remote.link_routes.start(options.link_routes)
        remote.auto_links.start(options.auto_links)
        burials = self._broker.core.events.burials
        self._router.start(traced_drivers(self._broker.drivers, burials, tracing), self._core)
        dialler = self._router.outbound_connections
        self._post(remote.connectors.start, dialler, options.connect_to, options.secrets_dir)
        if self._membership is None:
            self._health.serving(self._full_reason)
        else:
            self._health.serving(self._full_reason, self._membership.core.service.not_serving_reason)
            self._membership.start(self._router.watch, self._post)
        if self._metrics is not None:
            store = self._store
            self._metrics.show(FamilyCollector(BROKER_FAMILIES, lambda: Figures(
                self._broker.parts, self._core, options.metrics_of, self._audit, self._full_reason(), tracing
            )))  # fmt: skip
            if self._membership is not None:
                member = self._membership.core
                self._metrics.show(FamilyCollector(CLUSTER_FAMILIES, lambda: member))
            if isinstance(store, JournalStore):
                self._metrics.show(FamilyCollector(FAMILIES, lambda: measure(store)))
        self._beside = helper_processes(options)
        self._post(sampler.begin)
        # recovered nodes that are due for deletion are deleted, also without traffic
        self._post(self._broker.steps.durable, self._store.durable_lsn)
        if manager is not None:
            manager.ready(self._listening)
            self._post(manager.keep_alive, self._broker.core.scheduler)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has failed; return whether it has."""
        return self._ended.wait(timeout_s)

    def reload(self) -> None:
        """Read users, access rules and certificates again. Raises `CairnError`; nothing changes then."""

        def recorded(found: Reloaded) -> None:
            self._audit.changed(audit.Change("", audit.SIGNAL, *_RELOAD, audit.DONE, OK, closed=found.closed))

        try:
            self._read_again(recorded)
        except CairnError as error:
            self._audit.changed(audit.Change("", audit.SIGNAL, *_RELOAD, audit.FAILED, CONFLICT, str(error)))
            raise

    def _reload_and_report(self, done: Callable[[Reloaded | CairnError], None], is_dry_run: bool) -> None:
        """Reload, or only check, on behalf of management."""
        try:
            if is_dry_run:
                self._post(done, self._file_reload.check())
            else:
                self._read_again(done)
        except CairnError as error:
            self._post(done, error)

    def _read_again(self, done: Callable[[Reloaded], None]) -> None:
        """Reload, and notify the service manager of the result or the error. Any thread except the core."""
        manager = self._manager
        if manager is None:
            self._file_reload.reload(done)
            return

        def applied(found: Reloaded) -> None:
            manager.reloaded(self._listening, self._broker.core.scheduler)
            done(found)

        manager.reloading()
        try:
            self._file_reload.reload(applied)
        except CairnError as error:
            status = f"{self._listening}; reload failed, nothing is changed: {error}"
            self._post(manager.reloaded, status, self._broker.core.scheduler)
            raise

    def stop(self) -> None:
        """Shut down in order: notify clients, and make all records durable, or raise `JournalFailed`.

        Further calls wait until the first one has ended, and do nothing.
        """
        with self._stopping:
            if not self._is_stopped:
                self._is_stopped = True
                self._stop()

    def _stop(self) -> None:
        self._health.stopping()
        if self._manager is not None:
            self._manager.stopping()
        self._post(self._broker.returns.stopping)
        self._router.stop()
        for process in self._beside:
            process.stop()
        self._store.end_reads()
        self._reader.stop()
        self._compiler.stop()
        if self._metrics is not None:
            self._metrics.stop()
        if self._membership is not None:
            self._membership.stop(self._core.post)
        self._core.run_all()
        self._store.close()
        if self._span_export is not None:
            self._span_export.stop()
        self._stop_audit()
        if self._manager is not None:
            self._manager.close()
        if self.failure is not None:
            raise self.failure

    def end_connections(self) -> None:
        """Close the connections of a broker that has failed: clients that were sent the reason have time to read it."""
        self._router.stop()

    def _full_reason(self) -> str:
        """Return why the store is full. Any thread."""
        if not isinstance(self._store, JournalStore):
            return self._store.full()
        low = self._store.journal.pool.low
        return "" if low is None else low.reason

    def _stop_audit(self) -> None:
        self._audit.close()
        if self._end_audit_file is not None:
            self._end_audit_file()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._health.has_failed = True
        self._ended.set()


def _fitting(options: BrokerOptions) -> RouterOptions:
    """Return the router options with the session window limited for passthrough: held senders fill it in memory."""
    router = options.router
    if not (options.anycast or options.multicast or options.connect_to or options.link_routes):
        return router
    window_bytes = min(router.limits.session_window_bytes, SESSION_WINDOW_BYTES)
    return replace(router, limits=router.limits._replace(session_window_bytes=window_bytes))


def _trusted_path(options: BrokerOptions) -> str:
    """Return the path of the file of logins that succeeded; empty without users or a store directory."""
    is_kept = options.router.knows_users and options.store_dir and options.store_kind != "memory"
    return os.path.join(options.store_dir, FILE_NAME) if is_kept else ""
