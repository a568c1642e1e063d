"""A valid control message of each kind."""

from __future__ import annotations

from typing import Any

ME = [1, 2, 3]
VALID: dict[str, dict[str, Any]] = {
    "nothing": {}, "alive": {}, "synced": {}, "flow": {"off": True},
    "address": {"plain": [["a", 1]], "tls": []}, "consume": {"queue": "q", "first": 1}, "taken": {"queue": "q"},
    "state": {"view": 4, "standing": {"synced": True, "epoch": 1, "view": 2, "position": 3}, "cluster": "c",
              "empty": True, "clock_us": 5},
    "follow": {"to": ME, "cluster": "c", "epoch": 1, "clock_us": 5},
    "sync": {"wish": 1, "queues": {"q": 7}, "kept": ["q"], "heard": [[ME, 5]]},
    "snapshot": {
        "to": ME, "update": 1, "epoch": 2, "wiring": [{"do": "queue", "name": "q", "arguments": {}}], "synced": [ME],
        "floors": [[ME, 4]], "queues": [["q", 1, 5, ME, [ME], [[6, ME]], [7, [8]]]], "past": 9, "messages": 5,
        "remembered": {"q": ["k"]}, "lines": {"q": "l"}, "heard": [[ME, 5]], "knows": True,
    },
    "lacking": {"update": 1, "queue": "q", "number": 1, "positions": [4]},
    "followed": {"queue": "q", "line": "l", "number": 1},
    "update-done": {"to": ME, "update": 1, "queue": "q"},
    "change": {"change": {"do": "binding", "exchange": "x", "queue": "q", "key": "k", "arguments": {}}},
    "cancel": {"queue": "q", "first": 1, "acquired": [[1, 2]]},
    "release-queue": {"queue": "q", "first": 1, "acquired": []},
    "purge-wish": {"queue": "q", "by": ME, "number": 1}, "purge": {"queue": "q", "by": ME, "number": 1, "keep": [2]},
    "report-wish": {"by": ME, "number": 1, "asked": {}}, "report": {"to": ME, "number": 1, "told": {}},
}  # fmt: skip
