"""Redaction of contents, byte for byte, so that sizes and structure of a dump stay the same.

A hidden value is replaced by filler, or by a keyed hash of it. With the hash, equal values stay equal and joins still
work, and values cannot be guessed without the key. Texts become letters and digits, numbers become other numbers of
their width. Types, sizes and the keys of maps stay, so a message stays a valid message. Constants without a value, like
`true` or 0 in a byte, stay, too. A value that spans two pieces of a long message is always replaced by filler. Bytes
that are not AMQP from some position on, and a piece whose message began outside of the dump, become filler.
`docs/reference/history.md` lists the rules.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

from ...amqp.codec import sections
from ...amqp.codec.types import MAX_DEPTH
from ...base.errors import CairnError
from ...journal.format.record import Flag, RecordType

_START, _CHUNK = int(RecordType.START), int(RecordType.CHUNK)
_ONE = "application-properties:"
_RULES = {
    "body": {sections.DATA, sections.SEQUENCE, sections.VALUE},
    "properties": {sections.PROPERTIES},
    "application-properties": {sections.APPLICATION_PROPERTIES},
    "annotations": {sections.DELIVERY_ANNOTATIONS, sections.MESSAGE_ANNOTATIONS, sections.FOOTER},
}
_WIDTHS = {0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_BOOLEAN, _CHAR = 0x56, 0x73
_TEXTS = frozenset((0xA1, 0xB1, 0xA3, 0xB3))
_LETTERS = b"abcdefghijklmnopqrstuvwxyz234567"
_FILLER = b"x"


class _NotAmqp(Exception):
    """The content can't be taken apart from here on."""


class _Take(NamedTuple):
    """A request for bytes that are kept unchanged and returned."""

    size: int


class _Value(NamedTuple):
    """A request to hide bytes, which are a value of the type with that code, or to keep them unchanged."""

    size: int
    code: int
    is_hidden: bool


_Step = _Take | _Value
_Walk = Generator[_Step, bytes, None]


class Rules:
    """The rules of what is hidden, and how."""

    def __init__(self, rules: Iterable[str], key: bytes) -> None:
        """An empty *key* means filler. Raises `CairnError` for a rule that there is not."""
        self.sections: set[int] = set()
        self.names: set[str] = set()
        self.payloads = False
        self._key = key
        for rule in rules:
            if rule in _RULES:
                self.sections |= _RULES[rule]
            elif rule == "all":
                self.sections |= set.union(*_RULES.values())
            elif rule == "payloads":
                self.payloads = True
            elif rule.startswith(_ONE) and rule != _ONE:
                self.names.add(rule.removeprefix(_ONE))
            else:
                known = ", ".join((*_RULES, f"{_ONE}NAME", "all", "payloads"))
                raise CairnError(f"--redact {rule}", "unknown rule", f"there are {known}")

    def hidden(self, value: bytes, code: int = 0xA0) -> bytes:
        """The filler for a value of the type with that code."""
        if code == _BOOLEAN:
            return b"\0"
        if code == _CHAR:
            return b"\0\0\0x"
        if not self._key:
            return _filler(value, code)
        digest = b""
        block = hmac.digest(self._key, value, hashlib.sha256)
        while len(digest) < len(value):
            digest += block
            block = hmac.digest(self._key, block, hashlib.sha256)
        digest = digest[: len(value)]
        return bytes(_LETTERS[one & 31] for one in digest) if code in _TEXTS else digest


class Redaction:
    """Hides the values that the rules select in the records of one dump, in their order."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._long: dict[int, _Content] = {}  # messages of which pieces are to come
        self.opaque = 0
        """The number of records that were replaced by filler completely, or from some byte on."""

    def __call__(self, head: tuple[Any, ...], payload: bytes) -> bytes:
        """The redacted payload of a record with that head."""
        kind, flags, message_id = head[0], head[1], head[7]
        if kind not in (_START, _CHUNK):
            return payload
        if self._rules.payloads:
            return self._rules.hidden(payload)
        content = _Content(self._rules) if kind == _START else self._long.pop(message_id, None)
        if content is None:
            self.opaque += 1
            return _FILLER * len(payload)
        if flags & Flag.MORE:
            self._long[message_id] = content
        shown = content.redact(payload)
        self.opaque += content.is_opaque
        return shown


class _Content:
    """The redaction of one content, piece by piece."""

    def __init__(self, rules: Rules) -> None:
        self.is_opaque = False
        self._rules = rules
        self._walk = _sections(rules)
        self._step: _Step = next(self._walk)
        self._left = self._step.size
        self._got = b""

    def redact(self, piece: bytes) -> bytes:
        """The next piece, hidden."""
        out: list[bytes] = []
        at = 0
        while at < len(piece) and not self.is_opaque:
            part = piece[at : at + self._left]
            at += len(part)
            complete = len(part) == self._step.size
            self._left -= len(part)
            if isinstance(self._step, _Take):
                self._got += part
            elif self._step.is_hidden:
                part = (self._rules.hidden if complete else _filler)(part, self._step.code)
            out.append(part)
            try:
                while not self._left:
                    got, self._got = self._got, b""
                    self._step = self._walk.send(got)
                    self._left = self._step.size
            except (_NotAmqp, StopIteration):
                self.is_opaque = True
        return b"".join(out) + _FILLER * (len(piece) - at)


def _filler(part: bytes, code: int) -> bytes:
    return (b"\0" if code >> 4 in _WIDTHS else _FILLER) * len(part)


def _sections(rules: Rules) -> _Walk:
    while True:
        begin = yield _Take(2)
        if begin[0] != 0 or begin[1] not in (0x53, 0x80):
            raise _NotAmqp
        code = int.from_bytes((yield _Take(1 if begin[1] == 0x53 else 8)))
        if not 0x70 <= code <= sections.FOOTER:
            raise _NotAmqp
        hide = code in rules.sections
        if code == sections.APPLICATION_PROPERTIES:
            yield from _map(lambda name, all=hide: all or name in rules.names)  # type: ignore[misc]
        elif code in _RULES["annotations"]:
            yield from _map(lambda name, all=hide: all)  # type: ignore[misc]
        elif code == sections.VALUE:
            yield from _value(hide, 0)
        else:
            kind = (yield _Take(1))[0]
            if kind not in ((0xA0, 0xB0) if code == sections.DATA else (0x45, 0xC0, 0xD0)):
                raise _NotAmqp
            yield from _content_of(kind, hide, 0)


def _map(hides: Callable[[str], bool]) -> _Walk:
    """Walk a map and keep its keys; *hides* returns for a key whether to hide its value."""
    code = (yield _Take(1))[0]
    if code not in (0xC1, 0xD1):
        raise _NotAmqp
    width = 1 if code == 0xC1 else 4
    yield _Take(width)
    count = int.from_bytes((yield _Take(width)))
    if count % 2:
        raise _NotAmqp
    for _ in range(count // 2):
        key = (yield _Take(1))[0]
        if key not in _TEXTS:
            raise _NotAmqp
        size = int.from_bytes((yield _Take(1 if key < 0xB0 else 4)))
        name = (yield _Take(size)) if size else b""
        yield from _value(hides(name.decode("utf-8", "replace")), 0)


def _value(hide: bool, depth: int) -> _Walk:
    code = (yield _Take(1))[0]
    if code == 0:
        yield from _value(False, depth + 1)
        yield from _value(hide, depth + 1)
    else:
        yield from _content_of(code, hide, depth)


def _content_of(code: int, hide: bool, depth: int) -> _Walk:
    """The layout of the bytes that follow the code of a value."""
    category = code >> 4
    if depth > MAX_DEPTH or category not in (0x4, *_WIDTHS, 0xA, 0xB, 0xC, 0xD, 0xE, 0xF):
        raise _NotAmqp
    if category == 0x4:
        return
    if category in _WIDTHS:
        yield _Value(_WIDTHS[category], code, hide)
        return
    width = 1 if category in (0xA, 0xC, 0xE) else 4
    size = int.from_bytes((yield _Take(width)))
    if category in (0xA, 0xB) or not hide:
        if size:
            yield _Value(size, code, hide)
        return
    count = int.from_bytes((yield _Take(width)))
    if category in (0xC, 0xD):
        for _ in range(count):
            yield from _value(hide, depth + 1)
        return
    item = (yield _Take(1))[0]
    while item == 0:  # descriptors that all items share
        yield from _value(False, depth + 1)
        item = (yield _Take(1))[0]
    for _ in range(count if item >> 4 != 0x4 else 0):
        yield from _content_of(item, hide, depth + 1)
