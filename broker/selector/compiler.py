"""Selectors: JMS's conditions on messages (Jakarta Messaging 3.1, section 3.8.1), compiled once into one function.

A selector matches the messages for which it is true, not those for which it is false or unknown. It reads the header,
the properties and the application properties (`selector_names`), never the body, and only the sections that its names
need are decoded. A message in which they are unreadable does not match.

Compiling takes time in proportion to the text, running it in proportion to the text and the message (A16): there is no
backtracking. Nothing of the text is executed, only functions that are made here. A budget limits the product of a long
text and a long message: LIKE beyond it is an error, never a different result.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ...amqp.codec import header, sections
from ...amqp.codec.header import NO_HEADER, Header
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError
from . import expressions as nodes
from .expressions import BadSelector, Kind, Node
from .like import BadPattern, compiled
from .properties import APPLICATION, HEADER, PROPERTIES, BadName, Budget, View, getter

MAX_CHARACTERS = 16 << 10
"""The maximum length of any selector; the broker accepts only shorter ones, see `background_compiler`."""
MOST_STEPS = 4_000_000
"""The maximum steps of LIKE for one message, each about a nanosecond. 16 patterns can't exceed that with 60 KB."""
_START = r"(?:[^\W\d]|[$¢-¥֏؋৲৳৻૱௹฿៛₠-⃀‿⁀⁔])"
_PART = r"[\w$¢-¥֏؋৲৳৻૱௹฿៛₠-⃀‿⁀⁔]"
_GRAMMAR = rf"""
?start: or
?or: and | and (_OR and)+ -> any_of
?and: not | not (_AND not)+ -> all_of
?not: comparison | NOT not -> negation
?comparison: sum
    | sum COMPARE sum -> compare
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" STRING ("," STRING)* ")" -> is_in
    | sum [NOT] _LIKE STRING [_ESCAPE STRING] -> like
    | sum _IS [NOT] _NULL -> is_null
?sum: product | product (SIGN product)+ -> arithmetic
?product: unary | unary (TIMES unary)+ -> arithmetic
?unary: primary | SIGN unary -> signed
?primary: "(" or ")" | STRING -> text | NUMBER -> number | NAME -> name | TRUE -> truth | FALSE -> truth

COMPARE: "=" | "<>" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/"
STRING: /'(?:[^']|'')*'/
NUMBER: /0[xX][0-9a-fA-F.]*(?:[pP][+-]?[0-9]*)?[lLfFdD]?|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[lLfFdD]?/
NAME: /{_START}{_PART}*(?:\.{_START}{_PART}*)*/
%ignore /[ \t\r\n\f]+/
%declare _AND _OR NOT _BETWEEN _IN _LIKE _ESCAPE _IS _NULL TRUE FALSE
"""
_WORDS = {
    **{word: f"_{word}" for word in ("AND", "OR", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL")},
    **{word: word for word in ("NOT", "TRUE", "FALSE")},
}
_LONG = 1 << 63


class SelectorError(CairnError):
    """A selector that cannot be compiled; the text contains place and reason."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"selector, at character {at + 1}", reason)


@lru_cache(256)  # more than `background_compiler` allows for
def selector(text: str) -> Selector:
    """Return the compiled selector *text* from a cache, as clients repeat them. Raises `SelectorError`. Any thread."""
    return Selector(text)


class Selector:
    """A compiled selector."""

    def __init__(self, text: str) -> None:
        """Compile *text*. Raise `SelectorError`."""
        self.text = text
        root = _compile(text)
        self._run = root.run
        self._header = bool(root.needs & HEADER)
        self._properties = bool(root.needs & PROPERTIES)
        self._application = bool(root.needs & APPLICATION)
        self._steps = root.steps
        self.least_steps = 1000 + 25 * len(text)
        """The approximate steps for a message, without those of LIKE on long texts."""

    def matches(self, content: bytes) -> bool:
        """Return whether the selector matches *content*, a message or the beginning of a long one.

        Raise `OverBudget`.
        """
        try:
            return self._run(self._view(content)) is True
        except Malformed:
            return False

    def most_steps(self, size_bytes: int) -> int:
        """Return the maximum steps of LIKE for a message of *size_bytes*."""
        return size_bytes * self._steps

    def takes(self, parts: Parts, budget: Budget | None) -> bool:
        """Return whether the selector matches the message of *parts*, which selectors share. Raise `OverBudget`."""
        try:
            view = View(
                parts.head if self._header else NO_HEADER,
                parts.properties if self._properties else sections.NO_PROPERTIES,
                parts.named if self._application else {},
                budget,
            )
            return self._run(view) is True
        except Malformed:
            return False

    def _view(self, content: bytes) -> View:
        read, find = sections, sections.find
        return View(
            header.parse(content) if self._header else NO_HEADER,
            read.properties(content, find(content, read.PROPERTIES)) if self._properties else read.NO_PROPERTIES,
            read.application_properties(content, find(content, read.APPLICATION_PROPERTIES))
            if self._application
            else {},
            Budget(MOST_STEPS) if len(content) * self._steps > MOST_STEPS else None,
        )


class Parts:
    """The parts of a message for several selectors: each is decoded once, if any of them needs it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._broken: Malformed | None = None

    @cached_property
    def head(self) -> Header:
        return header.parse(self.content)

    @cached_property
    def properties(self) -> sections.Properties:
        return sections.properties(self.content, sections.find(self.content, sections.PROPERTIES))

    @cached_property
    def named(self) -> dict[str, Any]:
        if self._broken is not None:
            raise self._broken
        try:
            at = sections.find(self.content, sections.APPLICATION_PROPERTIES)
            return sections.application_properties(self.content, at)
        except Malformed as error:  # broken content may be long, too
            self._broken = error
            raise


def _compile(text: str) -> Node:
    if len(text) > MAX_CHARACTERS:
        raise SelectorError(MAX_CHARACTERS, f"it is longer than {MAX_CHARACTERS} characters")
    try:
        root: Any = _parser().parse(text)
        nodes.condition(root, "a selector")
    except UnexpectedInput as error:
        raise SelectorError(*_unexpected(text, error)) from None
    except BadSelector as error:
        raise SelectorError(error.at, str(error)) from None
    assert isinstance(root, Node)
    return root


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), lexer_callbacks={"NAME": _word})


def _word(token: Token) -> Token:
    """Reserved words are no names, however they are written."""
    return token.update(type=_WORDS.get(token.upper(), "NAME"))


def _unexpected(text: str, error: UnexpectedInput) -> tuple[int, str]:
    if isinstance(error, UnexpectedToken):
        token = error.token
        if token.type == "$END":
            return len(text.rstrip()), "it ends where more is expected"
        shown = str(token) if len(token) <= 40 else token[:40] + "..."
        return token.start_pos or 0, f"{shown} is not expected here"
    assert isinstance(error, UnexpectedCharacters)
    at = error.pos_in_stream
    assert at is not None
    return at, "a string without an end" if text[at] == "'" else f"{text[at]!r} is not expected here"


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Makes a node of each part as soon as the parser has read it; an optional word that is missing is None."""

    any_of = staticmethod(nodes.any_of)
    all_of = staticmethod(nodes.all_of)
    compare = staticmethod(nodes.compare)
    between = staticmethod(nodes.between)
    is_null = staticmethod(nodes.is_null)
    arithmetic = staticmethod(nodes.arithmetic)

    def negation(self, word: Token, part: Node) -> Node:
        return nodes.negation(part)

    def is_in(self, part: Node, negated: Token | None, *texts: Token) -> Node:
        return nodes.is_in(part, negated, frozenset(map(_text, texts)))

    def like(self, part: Node, negated: Token | None, pattern: Token, escape: Token | None) -> Node:
        char = None if escape is None else _text(escape)
        if escape is not None and len(char or "") != 1:
            raise BadSelector(escape.start_pos or 0, "ESCAPE takes one character")
        try:
            return nodes.like(part, negated, compiled(_text(pattern), char))
        except BadPattern as error:
            raise BadSelector(pattern.start_pos or 0, str(error)) from None

    def signed(self, sign: Token, part: Node) -> Node:
        if sign == "-" and part.literal is not None and part.kind is Kind.NUMBER:
            return _literal(nodes.negative(part.literal), Kind.NUMBER, sign.start_pos)
        return nodes.signed(sign, part)

    def text(self, token: Token) -> Node:
        return _literal(_text(token), Kind.TEXT, token.start_pos)

    def truth(self, token: Token) -> Node:
        return _literal(token.type == "TRUE", Kind.CONDITION, token.start_pos)

    def number(self, token: Token) -> Node:
        return _literal(_number(token), Kind.NUMBER, token.start_pos)

    def name(self, token: Token) -> Node:
        try:
            get, needs = getter(str(token))
        except BadName as error:
            raise BadSelector(token.start_pos or 0, str(error)) from None
        return Node(get, Kind.NAME, token.start_pos or 0, needs=needs)


def _literal(value: Any, kind: Kind, at: int | None) -> Node:
    return Node(lambda view: value, kind, at or 0, literal=value)


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)[lL]?")
_FLOAT = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([fFdD]?)")
_HEX_FLOAT = re.compile(r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)([fFdD]?)")


def _number(token: Token) -> int | float:
    """Return the value of a literal in Java's syntax: decimal, octal, hexadecimal; a float if it has a point."""
    found = _INTEGER.fullmatch(token)
    if found is not None:
        return _integer(found[1], token.start_pos or 0)
    found = _FLOAT.fullmatch(token)
    if found is not None and not _BAD_OCTAL.fullmatch(token):
        return _float(float, found[1], found[2], token)
    found = _HEX_FLOAT.fullmatch(token)
    if found is not None:
        return _float(float.fromhex, found[1], found[2], token)
    raise BadSelector(token.start_pos or 0, f"{token[:40]} is not a number")


_BAD_OCTAL = re.compile("0[0-9]+")


def _integer(digits: str, at: int) -> int:
    if digits[0] == "0" and len(digits) > 1:  # the bits of a long: the first one is its sign
        value = int(digits, 16 if digits[1] in "xX" else 8)
        most = 2 * _LONG - 1
        if _LONG <= value <= most:
            value -= 2 * _LONG
    elif len(digits) > 20:
        value, most = _LONG + 1, _LONG
    else:
        value, most = int(digits), _LONG  # a long with a minus sign before it, and harmless without
    if value > most:
        raise BadSelector(at, f"{digits[:40]} is more than a long holds")
    return value


def _float(read: Callable[[str], float], digits: str, suffix: str, token: Token) -> float:
    try:
        value = read(digits)
        if suffix in ("f", "F"):
            value = struct.unpack(">f", struct.pack(">f", value))[0]
        if value in (float("inf"), float("-inf")):
            raise OverflowError
    except OverflowError:
        raise BadSelector(token.start_pos or 0, f"{token[:40]} is more than a float holds") from None
    return value
