"""The options of a broker after a check of everything that their values name."""

from __future__ import annotations

from ...base.accounts import users
from ...broker.nodes.access_control import read as read_access
from ...broker_plugin.metrics_server import read_token
from ...broker_plugin.options import BrokerOptions
from ...router.outbound_connection import check_targets
from ...router.tls import make_context
from ...store.contract.registry import find_kind
from ..common.statuses import invalid_options
from .broker_options import broker_options
from .settings import BrokerSettings


def checked_options(given: BrokerSettings) -> BrokerOptions:
    """Return the options of the broker. Raises the errors of `broker_options`, and `InvalidOption` for unusable files.

    The files of users, access rules, certificates, keys and tokens are read; nothing is changed.
    """
    options = broker_options(given)
    with invalid_options():
        find_kind(options.store_kind)
        if options.router.users_file:
            users.read(options.router.users_file)
        if options.acl_file:
            read_access(options.acl_file)
        if options.router.tls is not None:
            make_context(options.router.tls)
        if options.metrics_token_file:
            read_token(options.metrics_token_file)
        check_targets(options.connect_to)
    return options
