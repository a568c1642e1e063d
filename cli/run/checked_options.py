"""The options of a broker after a check of everything that their values name."""

from __future__ import annotations

from ...broker_plugin.file_reload import read_files
from ...broker_plugin.options import BrokerOptions
from ..common.statuses import invalid_options
from .broker_options import broker_options
from .settings import BrokerSettings


def checked_options(given: BrokerSettings) -> BrokerOptions:
    """Return the options of the broker. Raises the errors of `broker_options`, and `InvalidOption` for unusable files.

    The files of users, access rules, certificates, keys and tokens are read; nothing is changed.
    """
    options = broker_options(given)
    with invalid_options():
        read_files(options)
    return options
