"""Tests of the validation of control events: members apply no invalid event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cairnmq.cluster.kernel import control_messages as control
from cairnmq.cluster.kernel.events import BadEvent, ControlEvent, decode
from cairnmq.cluster.kernel.events import control as event
from tests.harness.cluster.control_samples import VALID
from tests.harness.cluster.simulation import run

WRONG = (None, "text", -1.5, [None], {"do": "what nobody does"}, 1 << 70)


def test_all_that_is_told_is_known_here() -> None:
    assert set(VALID) == set(control._TOLD)


@pytest.mark.parametrize("what", VALID)
def test_a_field_that_is_missing_or_something_else(what: str) -> None:
    about = VALID[what]
    assert decode(event(what, **about)) == ControlEvent({"what": what, **about})
    for name in about:
        less = {other: value for other, value in about.items() if other != name}
        with pytest.raises(BadEvent, match=f"{what} has no valid {name}"):
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
    """All control events of a simulation are valid."""
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
