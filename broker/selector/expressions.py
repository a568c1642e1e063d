"""The parts of a selector, each a function of a message's view.

Conditions are True, False or None, which is unknown; a missing value is also None. Where JMS is open, the following
results are unknown: arithmetic on values that are not numbers, conditions that are not boolean, and a division of
integers by zero. Integers are Java's longs and wrap around as these do; an integer combined with a float becomes one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from .like import Pattern
from .properties import View

Run = Callable[[View], Any]
MAX_DEPTH = 100
"""The maximum depth of nested operators: a function calls another one for each level."""


class Kind(Enum):
    """The kind of value of a part of a selector, known before it is applied."""

    TEXT = "a string"
    NUMBER = "a number"
    CONDITION = "a condition"
    NAME = "a name"
    """A name, whose value may be of any type."""


class Node(NamedTuple):
    """A part of a selector, compiled."""

    run: Run
    kind: Kind
    at: int
    """The offset in the text where the part begins."""
    depth: int = 1
    needs: int = 0
    literal: Any = None
    steps: int = 0
    """The maximum steps of LIKE for each character of a message."""


class BadSelector(ValueError):
    """A syntax error in a selector; *at* is its offset in the text, from 0."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def joined(run: Run, kind: Kind, parts: Sequence[Node]) -> Node:
    """Return a node over *parts*."""
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise BadSelector(parts[0].at, f"operators are nested deeper than {MAX_DEPTH} levels")
    needs = steps = 0
    for part in parts:
        needs |= part.needs
        steps += part.steps
    return Node(run, kind, parts[0].at, depth, needs, steps=steps)


def _want(part: Node, kind: Kind, what: str) -> None:
    if part.kind not in (kind, Kind.NAME):
        raise BadSelector(part.at, f"{what} takes {kind.value}, not {part.kind.value}")


def condition(part: Node, what: str) -> Run:
    """*part* where a condition is wanted."""
    _want(part, Kind.CONDITION, what)
    return part.run


def _name(part: Node, what: str) -> Run:
    if part.kind is not Kind.NAME:
        raise BadSelector(part.at, f"{what} takes a name, not {part.kind.value}")
    return part.run


def all_of(*parts: Node) -> Node:
    return _connected(parts, "AND", False)


def any_of(*parts: Node) -> Node:
    return _connected(parts, "OR", True)


def _connected(parts: Sequence[Node], what: str, decisive: bool) -> Node:
    """Connect conditions: the result is *decisive* if one of them is, else unknown if one of them is no boolean."""
    runs = tuple(condition(part, what) for part in parts)
    neutral = not decisive

    def run(view: View) -> bool | None:
        result: bool | None = neutral
        for one in runs:
            found: object = one(view)
            if found is decisive:
                return decisive
            if found is not neutral:
                result = None
        return result

    return joined(run, Kind.CONDITION, parts)


def negation(part: Node) -> Node:
    inner = condition(part, "NOT")

    def run(view: View) -> bool | None:
        found = inner(view)
        return not found if found is True or found is False else None

    return joined(run, Kind.CONDITION, (part,))


def is_null(part: Node, negated: str | None) -> Node:
    get, wanted = _name(part, "IS NULL"), negated is None
    return joined(lambda view: (get(view) is None) is wanted, Kind.CONDITION, (part,))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(left: Node, sign: str, right: Node) -> Node:
    if sign not in ("=", "<>"):
        _want(left, Kind.NUMBER, sign)
        _want(right, Kind.NUMBER, sign)
    if left.literal is not None and right.literal is None:
        run = _with_literal(right.run, _MIRROR[sign], left.literal)
    elif right.literal is not None:
        run = _with_literal(left.run, sign, right.literal)
    else:
        run = _of_two(left.run, sign, right.run)
    return joined(run, Kind.CONDITION, (left, right))


def _with_literal(get: Run, sign: str, literal: Any) -> Run:
    """Nearly all comparisons: one side is known."""
    holds = _COMPARE[sign]
    kind = type(literal)
    if kind not in (int, float):

        def run(view: View) -> bool | None:
            value = get(view)
            if type(value) is kind:
                return holds(value, literal)
            return None if value is None else False

        return run
    as_float = float(literal)

    def run_number(view: View) -> bool | None:
        value = get(view)
        if type(value) is kind:
            return holds(value, literal)
        if type(value) is float or type(value) is int:
            return holds(float(value), as_float)
        return None if value is None else False

    return run_number


def _of_two(left: Run, sign: str, right: Run) -> Run:
    holds = _COMPARE[sign]
    ordered = sign not in ("=", "<>")

    def run(view: View) -> bool | None:
        one, other = left(view), right(view)
        if one is None or other is None:
            return None
        kind, other_kind = type(one), type(other)
        if kind is other_kind:
            return holds(one, other) if not ordered or kind is int or kind is float else False
        if (kind is int and other_kind is float) or (kind is float and other_kind is int):
            return holds(float(one), float(other))
        return False

    return run


def between(part: Node, negated: str | None, low: Node, high: Node) -> Node:
    """Compile BETWEEN to two comparisons, as JMS defines it."""
    if negated is None:
        return all_of(compare(part, ">=", low), compare(part, "<=", high))
    return any_of(compare(part, "<", low), compare(part, ">", high))


def is_in(part: Node, negated: str | None, texts: frozenset[str]) -> Node:
    get, wanted = _name(part, "IN"), negated is None

    def run(view: View) -> bool | None:
        value = get(view)
        return None if value is None else (type(value) is str and value in texts) is wanted

    return joined(run, Kind.CONDITION, (part,))


def like(part: Node, negated: str | None, pattern: Pattern) -> Node:
    get, wanted, (matches, steps) = _name(part, "LIKE"), negated is None, pattern

    def run(view: View) -> bool | None:
        value = get(view)
        if type(value) is not str:
            return None if value is None else not wanted
        if view.budget is not None:
            view.budget.spend(len(value) * steps)
        return matches(value) is wanted

    return joined(run, Kind.CONDITION, (part,))._replace(steps=steps)


def _wrapped(number: int) -> int:
    return number if -(1 << 63) <= number < 1 << 63 else ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def negative(number: Any) -> Any:
    return _wrapped(-number) if type(number) is int else -number


def _divided(one: Any, other: Any) -> Any:
    if type(one) is int:
        if not other:
            return None
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) is (other < 0) else -quotient
    if other:
        return one / other
    if not one or math.isnan(one) or math.isnan(other):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divided,
}  # fmt: skip


def arithmetic(*operation: Any) -> Node:
    """Return a node that applies the operators from left to right: *operation* has them between the parts."""
    parts, signs = operation[::2], operation[1::2]
    for part in parts:
        _want(part, Kind.NUMBER, signs[0])
    first = parts[0].run
    steps = tuple((_ARITHMETIC[sign], part.run) for sign, part in zip(signs, parts[1:], strict=True))

    def run(view: View) -> Any:
        result = first(view)
        if type(result) is not int and type(result) is not float:
            return None
        for apply, get in steps:
            value = get(view)
            if type(value) is not type(result):
                if type(value) is int:
                    value = float(value)
                elif type(value) is float:
                    result = float(result)
                else:
                    return None
            result = apply(result, value)
            if type(result) is int:
                result = _wrapped(result)
            elif result is None:
                return None
        return result

    return joined(run, Kind.NUMBER, parts)


def signed(sign: str, part: Node) -> Node:
    _want(part, Kind.NUMBER, f"a sign {sign}")
    get, minus = part.run, sign == "-"

    def run(view: View) -> Any:
        value = get(view)
        if type(value) is not int and type(value) is not float:
            return None
        return negative(value) if minus else value

    return joined(run, Kind.NUMBER, (part,))
