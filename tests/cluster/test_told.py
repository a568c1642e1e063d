"""What members tell each other is looked at before it is done: what one says wrongly, none does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cairnmq.cluster.kernel import control_messages as control
from cairnmq.cluster.kernel.events import BadEvent, ControlEvent, decode
from cairnmq.cluster.kernel.events import control as event

from .simulation import run

ME = [1, 2, 3]
RIGHT: dict[str, dict[str, Any]] = {
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
WRONG = (None, "text", -1.5, [None], {"do": "what nobody does"}, 1 << 70)


def test_all_that_is_told_is_known_here() -> None:
    assert set(RIGHT) == set(control._TOLD)


@pytest.mark.parametrize("what", RIGHT)
def test_a_field_that_is_missing_or_something_else(what: str) -> None:
    about = RIGHT[what]
    assert decode(event(what, **about)) == ControlEvent({"what": what, **about})
    for name in about:
        less = {other: value for other, value in about.items() if other != name}
        with pytest.raises(BadEvent, match=f"{what} without a proper {name}"):
            decode(event(what, **less))
        refused = 0
        for value in WRONG:
            try:
                decode(event(what, **{**about, name: value}))
            except BadEvent:
                refused += 1
        assert refused >= len(WRONG) - 1, "a text, a map or None may be right"


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"what": 1}', b'{"what": "of a newer version"}', b'"what"'])
def test_what_nobody_tells(data: bytes) -> None:
    with pytest.raises(BadEvent):
        decode(event("nothing")[:1] + data)


def test_what_a_whole_life_tells_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the shapes forbids what members say."""
    seen: set[str] = set()
    real = control.flaw

    def flaw(about: Any) -> str:
        json.dumps(about)
        wrong = real(about)
        assert not wrong, about
        seen.add(about["what"])
        return wrong

    monkeypatch.setattr("cairnmq.cluster.kernel.events.flaw", flaw)
    for seed in range(3):
        run(seed)
    assert {"state", "follow", "sync", "snapshot", "update-done", "synced", "consume", "cancel", "change"} <= seen
