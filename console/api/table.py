"""All endpoints of the API, except those of the session and of the description."""

from __future__ import annotations

from .endpoint import Endpoint
from .messages import MESSAGE_ENDPOINTS
from .overview import OVERVIEW_ENDPOINTS
from .queues import QUEUE_ENDPOINTS

ENDPOINTS: tuple[Endpoint, ...] = (*OVERVIEW_ENDPOINTS, *QUEUE_ENDPOINTS, *MESSAGE_ENDPOINTS)
