"""All endpoints of the API, except those of the session and of the description."""

from __future__ import annotations

from ..history.readers import HistoryReaders
from ..session.options import ConsoleOptions
from .access import Confirm
from .clients import CLIENT_ENDPOINTS
from .endpoint import Endpoint
from .exchanges import EXCHANGE_ENDPOINTS
from .history_api import HistoryApi
from .logs import BrokerFiles, LogTail
from .messages import MESSAGE_ENDPOINTS
from .monitor import MONITOR_ENDPOINTS, EventStreams
from .queues import QUEUE_ENDPOINTS
from .users import USER_ENDPOINTS


def all_endpoints(options: ConsoleOptions, confirm: Confirm) -> tuple[Endpoint, ...]:
    """Return all endpoints. *confirm*: see `Sessions.confirm`."""
    logs = LogTail(options.log_file)
    streams = EventStreams(logs, confirm)
    readers = HistoryReaders(options.store_dir, options.archive_dir, options.also, url=options.broker_url)
    history = HistoryApi(readers, confirm)
    return (
        *MONITOR_ENDPOINTS,
        Endpoint(
            "GET", "/events", "Receive events: overview, log", streams.open, result="stream", is_use=False
        ),
        *QUEUE_ENDPOINTS,
        *MESSAGE_ENDPOINTS,
        *EXCHANGE_ENDPOINTS,
        *CLIENT_ENDPOINTS,
        *USER_ENDPOINTS,
        *history.endpoints(),
        *BrokerFiles(options, logs).endpoints(),
    )
