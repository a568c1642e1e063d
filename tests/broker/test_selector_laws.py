"""Properties of selectors against a plain evaluator, of patterns against a slow matcher, and of their run time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Message, int32

from cairnmq.broker.selector.compiler import Selector, SelectorError
from cairnmq.broker.selector.like import BadPattern, compiled
from tests.harness.broker.slow_selectors import slowly_like

# ---- expressions as tuples, and their values ------------------------------------------------------------------------

Strategy = st.SearchStrategy[Any]
NAMES = ("a", "b", "c", "missing")
small = st.integers(-4, 4)
texts = st.text("ab%_'\\", max_size=3)
values = st.one_of(small, st.sampled_from([2**63 - 1, -(2**63), 2**62]), st.floats(-4, 4), texts, st.booleans())
names: Strategy = st.sampled_from(NAMES).map(lambda name: ("name", name))
numbers: Strategy = st.one_of(
    st.integers(0, 4).map(lambda number: ("literal", number, str(number))),
    st.sampled_from([(2.5, "2.5"), (8, "010"), (255, "0xfF"), (0.5, ".5"), (2**63 - 1, str(2**63 - 1))]).map(
        lambda pair: ("literal", *pair)
    ),
)
strings: Strategy = texts.map(lambda text: ("literal", text, "'" + text.replace("'", "''") + "'"))
booleans: Strategy = st.sampled_from([("literal", True, "TRUE"), ("literal", False, "false")])
arithmetic: Strategy = st.recursive(
    numbers | names,
    lambda inner: st.one_of(
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/"), inner, inner), st.tuples(st.just("minus"), inner)
    ),
    max_leaves=4,
)
plain: Strategy = st.one_of(
    names,
    booleans,
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), arithmetic, arithmetic),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), names | strings | booleans, strings | booleans | names),
    st.tuples(st.just("between"), st.booleans(), arithmetic, arithmetic, arithmetic),
    st.tuples(st.just("in"), st.booleans(), names, st.lists(strings, min_size=1, max_size=3)),
    st.tuples(st.just("like"), st.booleans(), names, strings),
    st.tuples(st.just("null"), st.booleans(), names),
)
conditions: Strategy = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), inner, booleans),
    ),
    max_leaves=6,
)


def text_of(tree: Any) -> str:
    """Return the text of an expression, fully parenthesized."""
    kind, *rest = tree
    if kind == "name":
        return str(rest[0])
    if kind == "literal":
        return str(rest[1])
    if kind in ("arithmetic", "compare"):
        return f"({text_of(rest[1])} {rest[0]} {text_of(rest[2])})"
    if kind == "minus":
        return f"(-{text_of(rest[0])})"
    if kind in ("and", "or"):
        return f"({text_of(rest[0])} {kind} {text_of(rest[1])})"
    if kind == "not":
        return f"(NOT {text_of(rest[0])})"
    part, word = text_of(rest[1]), "" if rest[0] else "NOT "
    if kind == "between":
        return f"({part} {word}BETWEEN {text_of(rest[2])} AND {text_of(rest[3])})"
    if kind == "in":
        return f"({part} {word}IN ({', '.join(map(text_of, rest[2]))}))"
    if kind == "like":
        return f"({part} {word}LIKE {text_of(rest[2])})"
    return f"({part} IS {word}NULL)"


def kind_of(value: Any) -> str:
    return "nothing" if value is None else "number" if type(value) in (int, float) else type(value).__name__


TRUTH = {True: 1.0, False: 0.0}
"""Kleene's logic on numbers: AND is the minimum, OR the maximum, NOT the difference from 1; unknown is 0.5."""


def truth(tree: Any, named: dict[str, Any]) -> float:
    value = meaning(tree, named)
    return TRUTH[value] if type(value) is bool else 0.5


def known(number: float) -> bool | None:
    return {0.0: False, 1.0: True}.get(number)


def compared(sign: str, one: Any, other: Any) -> bool | None:
    kinds = {kind_of(one), kind_of(other)}
    if "nothing" in kinds:
        return None
    if len(kinds) == 2 or (sign not in ("=", "<>") and kinds != {"number"}):
        return False
    if {type(one), type(other)} == {int, float}:
        one, other = float(one), float(other)
    less, equal, greater = one < other, one == other, one > other
    results: dict[str, bool] = {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": greater,
        ">=": greater or equal,
    }
    return results[sign]


def counted(sign: str, one: Any, other: Any) -> Any:
    if kind_of(one) != "number" or kind_of(other) != "number":
        return None
    complete = type(one) is int and type(other) is int
    if not complete:
        one, other = float(one), float(other)
    if sign == "/":
        if other == 0:
            if complete:
                return None
            sign_of = str(one).startswith("-") != str(other).startswith("-")
            return float("nan") if one == 0 or one != one else float("-inf" if sign_of else "inf")
        result = one / other if not complete else (abs(one) // abs(other)) * (1 if (one < 0) == (other < 0) else -1)
    else:
        result = {"+": one + other, "-": one - other, "*": one * other}[sign]
    return int.from_bytes((result % 2**64).to_bytes(8), signed=True) if complete else result


def meaning(tree: Any, named: dict[str, Any]) -> Any:
    kind, *rest = tree
    if kind == "name":
        return named.get(rest[0])
    if kind == "literal":
        return rest[0]
    if kind == "arithmetic":
        return counted(rest[0], meaning(rest[1], named), meaning(rest[2], named))
    if kind == "minus":
        value = meaning(rest[0], named)
        return counted("-", 0, value) if type(value) is int else -value if type(value) is float else None
    if kind == "compare":
        return compared(rest[0], meaning(rest[1], named), meaning(rest[2], named))
    if kind in ("and", "or"):
        return known((min if kind == "and" else max)(truth(rest[0], named), truth(rest[1], named)))
    if kind == "not":
        return known(1 - truth(rest[0], named))
    wanted, value = rest[0], meaning(rest[1], named)
    if kind == "null":
        return (value is None) == wanted
    if kind == "between":
        low, high = ("compare", ">=", rest[1], rest[2]), ("compare", "<=", rest[1], rest[3])
        if not wanted:
            low, high = ("compare", "<", rest[1], rest[2]), ("compare", ">", rest[1], rest[3])
        return meaning(("and" if wanted else "or", low, high), named)
    if value is None:
        return None
    if kind == "in":
        return (value in [text for _, text, _ in rest[2]] and type(value) is str) == wanted
    return (type(value) is str and slowly_like(value, rest[2][1])) == wanted


@given(tree=conditions, named=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES[:3], values)))
@example(tree=("compare", "<>", ("minus", ("name", "a")), ("name", "a")), named={"a": -(2**63)})
@example(tree=("and", ("name", "b"), ("not", ("name", "b"))), named={"b": "x"})
def test_it_means_what_the_rules_say(tree: Any, named: dict[str, Any]) -> None:
    message = Message(body="x")
    message.properties = {name: int32(of) if type(of) is int and abs(of) < 5 else of for name, of in named.items()}
    assert Selector(text_of(tree)).matches(bytes(message.encode())) is (meaning(tree, named) is True)


@given(text=st.text("ab_NOT =<'(%1.x,\\", max_size=20) | st.text(max_size=10))
def test_any_text_is_a_selector_or_an_error_with_a_place(text: str) -> None:
    try:
        Selector(text).matches(b"")
    except SelectorError as error:
        place = error.place
    else:
        return
    assert 0 < int(place.removeprefix("selector, at character ")) <= len(text) + 1


@given(text=st.text("ab", max_size=12), pattern=st.text("ab%_", max_size=8))
@example(text="aab", pattern="%a_%")
@example(text="abab", pattern="%ab_b")
def test_patterns_match_what_a_slow_matcher_says(text: str, pattern: str) -> None:
    assert compiled(pattern)(text) is slowly_like(text, pattern)


@given(text=st.text("a%_!", max_size=6), other=st.text("a%_!", max_size=6))
def test_what_is_escaped_stands_for_itself(text: str, other: str) -> None:
    escaped = "".join("!" + char if char in "%_!" else char for char in text)
    assert compiled(escaped, "!")(other) is (other == text)


@given(pattern=st.text("a%_!", max_size=6))
def test_any_pattern_is_compiled_or_bad(pattern: str) -> None:
    try:
        compiled(pattern, "!")("a")
    except BadPattern:
        pass


# ---- time ---------------------------------------------------------------------------------------------------------


def steps(work: Callable[[], object]) -> int:
    """Return the number of Python lines that *work* executes."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("pattern", ["%a" * 40 + "%b", "%a_" * 40 + "b", "%_" * 100 + "b", "%aa_aa%aa_ab%", "_%_a%_b"])
def test_a_pattern_takes_time_in_proportion_to_the_text(pattern: str) -> None:  # A16
    """Matching takes linear time; with backtracking the exponent would be the number of `%`."""
    matches = compiled(pattern)
    short, long = (steps(lambda size=size: matches("a" * size)) for size in (1000, 4000))  # type: ignore[misc]
    assert long <= 4.2 * short + 50


@pytest.mark.parametrize(
    ("begin", "again", "end"),
    [
        ("a = 1", " AND a = 1", ""),
        ("a = 1", " OR a = 1", ""),
        ("a", " + a", " = 1"),
        ("a IN ('x'", ", 'x'", ")"),
        ("a LIKE '", "%x", "'"),
        ("", "(", ""),
        ("a = '", "''", "'"),
        ("a = ", "1", ""),
        ("", "NOT ", "a"),
    ],
)
def test_compiling_takes_time_in_proportion_to_the_text(begin: str, again: str, end: str) -> None:  # A16
    def compile_it(times: int) -> None:
        try:
            Selector(begin + again * times + end)
        except SelectorError:
            pass

    compile_it(1)  # creates the parser, once
    short, long = (steps(lambda times=times: compile_it(times)) for times in (200, 800))  # type: ignore[misc]
    assert long <= 4.5 * short + 100
