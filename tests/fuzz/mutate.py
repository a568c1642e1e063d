"""Mutations of valid input that take the AMQP encoding and AMQP frames into account."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

CODES = bytes.fromhex(
    "40 41 42 43 44 45 50 51 52 53 54 55 56 60 61 70 71 72 73 74 80 81 82 83 84 94 98 a0 a1 a3 b0 b1 b3"
    "c0 c1 d0 d1 e0 f0 00"
)
"""All constructors of AMQP types, and the constructor of described values."""
LIES = (0, 1, 7, 8, 255, 256, 511, 512, 0x7FFF, 0xFFFF, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
"""Sizes, counts and IDs that are usually invalid."""
WORDS = (
    "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "(", ")", ",", "'", "''",
    "+", "-", "*", "/", "=", "<>", "<=", ">", "a", "b.c", "JMSType", "amqp.to", "0x", "1e309", "9223372036854775808",
    "'%_%'", "'!'", ".5", "1L", "0x1p-3d", "é", "$", "\x00", "\n", "𝄞",
)  # fmt: skip


class Mutator:
    """A generator of inputs that are a deterministic function of the seed."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._changes: Sequence[Callable[[bytes, Sequence[bytes]], bytes]] = (
            self._flip, self._set, self._set, self._lie, self._lie, self._swap_code, self._swap_code, self._cut,
            self._leave_out, self._double, self._insert, self._splice, self._nest,
        )  # fmt: skip

    def blob(self, corpus: Sequence[bytes]) -> bytes:
        """Return an element of *corpus* with up to nine changes, sometimes unchanged."""
        found = self._chance.choice(corpus)
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 2, 3, 5, 9))):
            found = self._chance.choice(self._changes)(found, corpus)
        return found

    def frames(self, corpus: Sequence[Sequence[bytes]]) -> bytes:
        """Return a protocol header and frames of *corpus*, with frames changed, removed, moved or duplicated."""
        chance = self._chance
        header, *frames = chance.choice(corpus)
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 8))):
            if not frames:
                break
            at, what = chance.randrange(len(frames)), chance.randrange(12)
            if what < 6:
                frames[at] = self._framed(frames[at], chance.choice(corpus))
            elif what == 6:
                del frames[at]
            elif what == 7:
                frames.insert(chance.randrange(len(frames) + 1), frames[at])
            elif what == 8:
                frames[at : at + 1] = [frames[at]] * chance.choice((2, 3, 17, 60))
            elif what == 9:
                frames.insert(at, chance.choice(chance.choice(corpus)[1:] or [b""]))
            elif what == 10:
                frames = frames[: at + 1] + list(chance.choice(corpus)[1:])[-chance.randrange(1, 12) :]
            else:
                frames.insert(at, frames.pop(chance.randrange(len(frames))))
        if not chance.randrange(40):
            header = self._flip(header, [])
        data = header + b"".join(frames)
        return self._cut(data, []) if not chance.randrange(12) else data

    def text(self, corpus: Sequence[str]) -> str:
        """Return a selector of *corpus* with words inserted, removed, replaced or repeated."""
        chance = self._chance
        words = chance.choice(corpus).split(" ")
        for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
            at, what = chance.randrange(len(words) + 1), chance.randrange(9)
            if what < 3:
                words.insert(at, chance.choice(WORDS))
            elif what == 3:
                del words[at : at + chance.randrange(1, 3)]
            elif what == 4:
                words[at : at + 1] = words[at : at + 1] * chance.choice((2, 3, 50))
            elif what == 5:
                words[at:] = chance.choice(corpus).split(" ")
            elif what == 6:
                deep = chance.choice((1, 2, 30, 300))
                words = ["(" * deep, *words, ")" * chance.choice((deep, deep, deep - 1))]
            elif what == 7:
                words.insert(at, chr(chance.choice((chance.randrange(128), chance.randrange(0xD800)))))
            else:
                words = [chance.choice(("NOT", "-", "+")) + " "] * chance.choice((1, 5, 200)) + words
            if not words:
                words = ["a"]
        return chance.choice(("", " ")).join(words) if not chance.randrange(30) else " ".join(words)

    def _framed(self, frame: bytes, corpus: Sequence[bytes]) -> bytes:
        """Return *frame* with changed content, usually with the correct size."""
        if len(frame) < 8:
            return frame
        if not self._chance.randrange(12):
            return self._chance.choice(self._changes)(frame, corpus)
        body = frame[8:]
        for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
            body = self._chance.choice(self._changes)(body, corpus)
        return (8 + len(body)).to_bytes(4) + frame[4:8] + body

    # ---- changes ----------------------------------------------------------------------------------------------------

    def _at(self, data: bytes) -> int:
        """Return a random offset, biased towards the beginning, which contains most of the structure."""
        return min(self._chance.randrange(len(data)), self._chance.randrange(len(data))) if data else 0

    def _flip(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        if not data:
            return b"\x00"
        at = self._at(data)
        return data[:at] + bytes((data[at] ^ 1 << self._chance.randrange(8),)) + data[at + 1 :]

    def _set(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        at = self._at(data)
        new = self._chance.choice((0, 1, 0x7F, 0x80, 0xFF, self._chance.randrange(256)))
        return data[:at] + bytes((new,)) + data[at + 1 :]

    def _lie(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        at, width = self._at(data), self._chance.choice((1, 4, 4, 8))
        lie = self._chance.choice((*LIES, len(data), len(data) - at, self._chance.randrange(1 << 32)))
        return data[:at] + (lie & (1 << 8 * width) - 1).to_bytes(width) + data[at + width :]

    def _swap_code(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        places = [at for at, byte in enumerate(data[:400]) if byte in CODES]
        if not places:
            return data
        at = self._chance.choice(places)
        return data[:at] + bytes((self._chance.choice(CODES),)) + data[at + 1 :]

    def _cut(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        return data[: self._chance.randrange(len(data) + 1)]

    def _leave_out(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        at = self._at(data)
        return data[:at] + data[at + self._chance.choice((1, 1, 2, 4, 16)) :]

    def _double(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        at = self._at(data)
        end = at + self._chance.choice((1, 2, 4, 8, 32))
        return data[:end] + data[at:end] * self._chance.choice((1, 1, 2, 30)) + data[end:]

    def _insert(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        other = self._chance.choice(corpus) if corpus else b"\x40"
        at, begin = self._at(data), self._at(other)
        return data[:at] + other[begin : begin + self._chance.choice((1, 4, 16, 64))] + data[at:]

    def _splice(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        other = self._chance.choice(corpus) if corpus else b""
        return data[: self._at(data)] + other[self._at(other) :]

    def _nest(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        """Nest the bytes at a random offset in lists, described values or arrays of correct sizes."""
        at = self._at(data)
        inner, kind = data[at : at + 64], self._chance.randrange(3)
        for _ in range(self._chance.choice((1, 2, 15, 16, 17, 40, 400))):
            if kind == 0:
                inner = b"\xd0" + (len(inner) + 4).to_bytes(4) + b"\x00\x00\x00\x01" + inner
            elif kind == 1:
                inner = b"\x00\x53\x24" + inner
            else:
                inner = b"\xf0" + (len(inner) + 5).to_bytes(4) + b"\x00\x00\x00\x01\xf0" + inner
        return data[:at] + inner + data[at + 64 :]
