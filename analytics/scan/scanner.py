"""A container read by windows, whose record heads are found by numpy: no step per record, and few per block.

Heads are at multiples of 64 bytes, so a window is a table of which some rows are heads. Blocks begin at sectors and
contain their LSN. If each names the one before it, all blocks of a window are found at once. Where the chain breaks,
the next complete block is searched sector by sector, by its checksum, and the range between is `Damaged`.

Windows share one buffer: data must be copied before the next window is requested. A window is returned only if the
container still held its slot *after* it was read. Otherwise `Reclaimed` reports the LSN from which it did not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from ...base.disk.real import RealFile, was_missing
from ...base.disk.seam import SECTOR_BYTES
from ...base.errors import DiskError, JournalError
from ...journal.format.block import BLOCK_HEAD_BYTES, FORMAT, MAGIC, BadBlock, peek
from ...journal.format.container import DATA_OFFSET
from ...journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, TABLE
from .files import LogPiece
from .number_sets import Longs

WINDOW_BYTES = 1 << 20
"""No block is longer."""
_AHEAD_BYTES = 4096
"""So much is read where a block is expected, if only heads are wanted,"""
_WORTH_BYTES = 16 << 10
"""and payloads are left out where at least so much can be."""
_WORTH_SLICING = 16
"""Blocks with so many records on average are cut out one by one."""
_HEAD_WORDS = HEAD_BYTES // 8
_NUMBERS = np.arange(1 << 16, dtype=np.uint16)
Bytes = npt.NDArray[np.uint8]
Heads = npt.NDArray[np.void]


class Reclaimed(JournalError):
    """The container holds another slot by now; everything before *lsn* was given."""

    def __init__(self, path: str, lsn: int) -> None:
        super().__init__(path, f"LSN {lsn} was reclaimed while it was read", "keep history in an archive, or by a slot")
        self.lsn = lsn


@dataclass(frozen=True)
class Damaged:
    """An unreadable range."""

    path: str
    first_lsn: int
    end_lsn: int
    reason: str


class Window:
    """Consecutive complete blocks, and the buffer that contains them."""

    def __init__(self, data: Bytes, lsn: int, blocks: Longs, counts: Longs, incarnations: Longs, end_lsn: int) -> None:
        """*blocks*: the LSNs of the blocks, which end at *end_lsn*; *lsn*: that of the first byte of *data*."""
        self.end_lsn = end_lsn
        self.data = data
        self.lsn = lsn
        self.blocks = blocks
        self.counts = counts
        """The number of records of each block."""
        self.incarnations = incarnations
        self._firsts = (blocks - lsn) // HEAD_BYTES + 1

    @cached_property
    def heads(self) -> Heads:
        """The record heads side by side, in order. Of one block they are not copied; fields of them are cheap."""
        words = self.data[: len(self.data) // HEAD_BYTES * HEAD_BYTES].view(np.uint64).reshape(-1, _HEAD_WORDS)
        if len(self.blocks) == 1:
            found = words[int(self._firsts[0]) : int(self._firsts[0] + self.counts[0])]
        elif len(self.blocks) * _WORTH_SLICING > int(self.counts.sum()):
            found = words.take(self._rows, axis=0)
        else:
            ends = self._firsts + self.counts
            found = np.concatenate([
                words[first:end] for first, end in zip(self._firsts.tolist(), ends.tolist(), strict=True)
            ])  # fmt: skip
        return found.view(TABLE).reshape(-1)

    @cached_property
    def lsns(self) -> Longs:
        """The LSNs of the records."""
        if len(self.blocks) == 1:
            first = int(self.blocks[0]) + BLOCK_HEAD_BYTES
            return np.arange(first, first + HEAD_BYTES * int(self.counts[0]), HEAD_BYTES, dtype=np.int64)
        found: Longs = self._rows * HEAD_BYTES + self.lsn
        return found

    @property
    def numbers(self) -> npt.NDArray[np.uint16]:
        """The number of each record in its block."""
        if len(self.blocks) == 1:
            return _NUMBERS[: int(self.counts[0])]
        ends = np.cumsum(self.counts)
        return (np.arange(ends[-1]) - np.repeat(ends - self.counts, self.counts)).astype(np.uint16)

    @cached_property
    def _rows(self) -> Longs:
        """The places of the heads in the buffer, counted in heads."""
        ends = np.cumsum(self.counts)
        found: Longs = np.arange(ends[-1]) + np.repeat(self._firsts - (ends - self.counts), self.counts)
        return found

    def of_blocks(self, chosen: Longs | None, values: Longs) -> Longs:
        """For each of the *chosen* records (None: for all) the value that its block has."""
        if chosen is None:
            return np.repeat(values, self.counts)
        return values[np.searchsorted(np.cumsum(self.counts), chosen, "right")]

    def payloads(self, chosen: Longs | None = None) -> list[bytes]:
        """The payloads of the *chosen* records (None: of all)."""
        sizes, runs = self.payload_runs(chosen)
        joined = b"".join([run.data for run in runs])
        ends = np.cumsum(sizes)
        return [joined[begin:end] for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]

    def payload_runs(self, chosen: Longs | None = None) -> tuple[Longs, list[Bytes]]:
        """The sizes of these payloads, and the parts of the buffer that hold them one after the other."""
        begins = self.blocks - self.lsn + BLOCK_HEAD_BYTES + HEAD_BYTES * self.counts
        heads = self.heads if chosen is None else self.heads[chosen]
        starts = self.of_blocks(chosen, begins) + heads["place"]
        sizes: Longs = heads["size"].astype(np.int64)
        ends = starts + sizes
        if len(heads) and (int(ends.max()) > len(self.data) or int(sizes.max()) > MAX_PAYLOAD_BYTES):
            at = int(np.argmax((ends > len(self.data)) | (sizes > MAX_PAYLOAD_BYTES)))
            lsn = int(self.lsns[at] if chosen is None else self.lsns[chosen[at]])
            raise JournalError(f"LSN {lsn}", "its payload passes the end of the block", "read it with verify=full")
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1  # payloads of a block stand without gaps
        firsts, lasts = np.r_[0, breaks], np.r_[breaks, len(heads)] - 1
        bounds = zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True) if len(heads) else ()
        return sizes, [self.data[begin:end] for begin, end in bounds if end > begin]


def all_payloads(heads: Heads) -> bool:
    """A filter of a `Scanner` that reads all payloads."""
    return True


def no_payloads(heads: Heads) -> bool:
    """A filter of a `Scanner` that reads no payloads: their bytes in windows are undefined."""
    return False


class Scanner:
    """Reads pieces of one log, one after the other. One thread at a time."""

    def __init__(
        self, container_bytes: int, log_id: int, needs_payloads: Callable[[Heads], bool], *, verify: bool
    ) -> None:
        """*needs_payloads*: whether those of a window with these heads have to be read. *verify*: check the checksum of
        each block."""
        self.container_bytes = container_bytes
        self.log_id = log_id
        self.verify = verify
        self.needs_payloads = needs_payloads
        self.heads_first = not verify and needs_payloads is not all_payloads
        self.buffer = np.zeros(2 * WINDOW_BYTES, np.uint8)
        self.view = memoryview(self.buffer.data)

    def scan(self, piece: LogPiece, from_lsn: int = 0) -> Iterator[Window | Damaged]:
        """Yield the blocks of *piece*, from the one at *from_lsn* on. Raises `Reclaimed` and `DiskError`."""
        try:
            file = RealFile(piece.path, os.O_RDONLY)
        except DiskError as error:
            if not was_missing(error):
                raise
            raise Reclaimed(piece.path, from_lsn or piece.slot_lsn) from error
        with closing(file):
            if file.read_at(0, len(piece.head)) != piece.head:
                raise Reclaimed(piece.path, from_lsn or piece.slot_lsn)
            for found in _Scan(self, file, piece, from_lsn).run():
                if file.read_at(0, len(piece.head)) != piece.head:
                    raise Reclaimed(piece.path, found.lsn if isinstance(found, Window) else found.first_lsn)
                yield found


class _Scan:
    """The scan of one piece."""

    def __init__(self, scanner: Scanner, file: RealFile, piece: LogPiece, from_lsn: int) -> None:
        self._scanner = scanner
        self._file = file
        self._piece = piece
        self._at = from_lsn or piece.slot_lsn + DATA_OFFSET  # where the next block is expected
        self._last = 0  # the block before it, 0 if that is not known
        self._incarnation = 0  # of that
        self._broken = ""  # why no block could be read at `_at`; one is looked for behind it then
        self._skipped: list[tuple[int, int]] = []  # ranges of the buffer that were not read, as no head stands there

    def run(self) -> Iterator[Window | Damaged]:
        scanner, piece, size = self._scanner, self._piece, self._scanner.container_bytes
        begin = self._at - piece.slot_lsn  # the offset in the container of the buffer's first byte
        kept = 0
        while begin + kept < size and not self._is_over():
            wanted = min(WINDOW_BYTES, size - begin - kept)
            if scanner.heads_first and not self._broken:
                self._fill_heads(begin, kept, wanted)
            else:
                self._fill(begin + kept, kept, wanted)
            data = scanner.buffer[: kept + wanted]
            done = yield from self._window(data, piece.slot_lsn + begin)
            kept = len(data) - done
            if kept > WINDOW_BYTES:  # no block is so long: the bytes are not a block
                done, kept = len(data), 0
            scanner.buffer[:kept] = data[done:].copy()
            self._skipped = [(max(first - done, 0), end - done) for first, end in self._skipped if end > done]
            begin += done
        if piece.reach_lsn > self._at:
            end_lsn = piece.end_lsn if piece.reach_lsn == piece.end_lsn else piece.slot_lsn + size
            yield Damaged(piece.path, self._at, end_lsn, self._broken or "nothing was written there")

    def _is_over(self) -> bool:
        piece = self._piece
        return bool(piece.last_lsn and self._last >= piece.last_lsn) or self._at >= piece.end_lsn

    def _fill_heads(self, begin: int, kept: int, wanted: int) -> None:
        """Fill the buffer like `_fill`, but skip long payloads of blocks at their expected positions.

        The buffer begins at *begin* in the container; after an invalid head everything is read.
        """
        data, end = self._scanner.buffer, kept + wanted
        at, known = self._at - self._piece.slot_lsn - begin, kept
        while known < end:
            if at + BLOCK_HEAD_BYTES > known:
                upto = min(max(at + _AHEAD_BYTES, known + _AHEAD_BYTES), end)
                self._fill(begin + known, known, upto - known)
                known = upto
                continue
            magic, count, size = data[at : at + 20].view(np.uint32)[[1, 3, 4]].tolist()
            heads_end = at + BLOCK_HEAD_BYTES + HEAD_BYTES * count
            block_end = at + -(-size // SECTOR_BYTES) * SECTOR_BYTES
            if magic != MAGIC or not heads_end <= block_end <= end:
                self._fill(begin + known, known, end - known)
                return
            if heads_end > known:
                self._fill(begin + known, known, heads_end - known)
                known = heads_end
            if block_end - known > _WORTH_BYTES:
                self._skipped.append((known, block_end))
                known = block_end
            at = block_end

    def _read_skipped(self, lsn: int) -> bool:
        """Read what was left out of the buffer, which stands at *lsn*; whether there was any."""
        skipped, self._skipped = self._skipped, []
        for first, end in skipped:
            self._fill(lsn - self._piece.slot_lsn + first, first, end - first)
        return bool(skipped)

    def _fill(self, offset: int, kept: int, wanted: int) -> None:
        """Read into the buffer after its kept part; a sector with a read error reads as zeros."""
        view = self._scanner.view[kept : kept + wanted]
        try:
            got = self._file.read_into(offset, view)
            view[got:] = bytes(wanted - got)
        except DiskError:
            for at in range(0, wanted, SECTOR_BYTES):
                sector = view[at : at + SECTOR_BYTES]
                sector[:] = bytes(len(sector))
                with suppress(DiskError):
                    self._file.read_into(offset + at, sector)

    def _window(self, data: Bytes, lsn: int) -> Generator[Window | Damaged, None, int]:
        """Yield the blocks in *data*, which begins at *lsn*; return the size that need not be searched again."""
        found = self._candidates(data, lsn)
        end_of_data = lsn + len(data)
        while True:
            at = int(np.searchsorted(found.lsns, self._at, "right" if self._broken else "left"))
            if self._broken:
                while at < found.size and found.incarnations[at] < self._incarnation:
                    at += 1
                if at == found.size:
                    return len(data)
                if found.ends[at] > end_of_data:
                    return int(found.lsns[at]) - lsn
                if not self._is_complete(data, lsn, found, at):
                    found = found.without(at)
                    continue
                yield Damaged(self._piece.path, self._at, int(found.lsns[at]), self._broken)
                self._at, self._last, self._broken = int(found.lsns[at]), 0, ""
            if self._at >= end_of_data or self._is_over():
                return len(data)
            if at == found.size or found.lsns[at] != self._at or not self._follows(found, at):
                if self._read_skipped(lsn):
                    found = self._candidates(data, lsn)
                else:
                    self._broken = self._reason(data, lsn, found, at)
                continue
            upto = found.chained(at)
            complete = at + int(np.searchsorted(found.ends[at:upto], end_of_data, "right"))
            window = found.window(data, lsn, at, complete)
            good = self._proven(window, found, at, complete)
            if good > at:
                self._at, self._last = int(found.ends[good - 1]), int(found.lsns[good - 1])
                self._incarnation = int(found.incarnations[good - 1])
                window = window if good == complete else found.window(data, lsn, at, good)
                if self._skipped and self._scanner.needs_payloads(window.heads):
                    self._read_skipped(lsn)
                yield window
            if good == complete < upto:
                return int(found.lsns[complete]) - lsn

    def _candidates(self, data: Bytes, lsn: int) -> _Candidates:
        """Return the sectors that contain a block head with their own LSN."""
        piece = self._piece
        words, longs = data.view(np.uint32), data.view(np.uint64)
        sectors = np.flatnonzero(words[1::128] == MAGIC)
        claims = longs[3::64][sectors] == (sectors * SECTOR_BYTES + lsn).astype(np.uint64)
        sectors = sectors[claims & (longs[7::64][sectors] == np.uint64(self._scanner.log_id))]
        counts = words[3::128][sectors].astype(np.int64)
        sizes = words[4::128][sectors].astype(np.int64)
        lsns = sectors * SECTOR_BYTES + lsn
        ends = lsns + -(-sizes // SECTOR_BYTES) * SECTOR_BYTES
        fits = (data.view(np.uint16)[4::256][sectors] <= FORMAT) & (sizes >= BLOCK_HEAD_BYTES + HEAD_BYTES * counts)
        fits &= (ends <= piece.end_lsn) & (lsns >= self._at)
        if piece.last_lsn:
            fits &= lsns <= piece.last_lsn
        sectors = sectors[fits]
        return _Candidates(
            lsns[fits], ends[fits], sizes[fits], counts[fits], longs[4::64][sectors].astype(np.int64),
            words[5::128][sectors].astype(np.int64), words[::128][sectors],
        )  # fmt: skip

    def _follows(self, found: _Candidates, at: int) -> bool:
        """Return whether the candidate at the expected position of a block follows the one before."""
        if found.incarnations[at] < self._incarnation:
            return False  # left over in a slot that was started again
        return not self._last or found.previous[at] == self._last

    def _reason(self, data: Bytes, lsn: int, found: _Candidates, at: int) -> str:
        if at < found.size and found.lsns[at] == self._at:
            return f"its block follows the one at LSN {found.previous[at]}"
        try:
            peek(memoryview(data.data)[self._at - lsn :], self._at, self._scanner.log_id)
        except BadBlock as error:
            return error.reason
        return "its block exceeds the durable end of the log"

    def _proven(self, window: Window, found: _Candidates, begin: int, end: int) -> int:
        """The first of the blocks from *begin* to *end*, those of *window*, that is not whole; *end* if all are."""
        data, lsn = window.data, window.lsn
        if self._scanner.verify or begin == end:
            suspects: Sequence[int] = range(begin, end)
        else:  # the heads of a block are numbered: what was written over by something else shows at once
            wrong = np.flatnonzero(window.heads["number"] != window.numbers)
            owners = np.searchsorted(np.cumsum(window.counts), wrong, "right")
            suspects = [begin + int(number) for number in np.unique(owners)] if len(owners) else range(0)
        if suspects:
            self._read_skipped(lsn)
        for at in suspects:
            if not self._is_complete(data, lsn, found, at):
                self._broken = f"checksum fails over {found.sizes[at]} bytes"
                return at
        return end

    def _is_complete(self, data: Bytes, lsn: int, found: _Candidates, at: int) -> bool:
        begin = int(found.lsns[at]) - lsn
        return bool(crc32c(memoryview(data.data)[begin + 4 : begin + int(found.sizes[at])]) == found.crcs[at])


class _Candidates(NamedTuple):
    """Fields of block heads, in the order of LSNs."""

    lsns: Longs
    ends: Longs
    sizes: Longs
    counts: Longs
    previous: Longs
    incarnations: Longs
    crcs: npt.NDArray[np.uint32]

    @property
    def size(self) -> int:
        return len(self.lsns)

    def chained(self, begin: int) -> int:
        """Behind the last of those that follow one another from *begin* on."""
        follows = self.lsns[begin + 1 :] == self.ends[begin:-1]
        follows &= self.previous[begin + 1 :] == self.lsns[begin:-1]
        follows &= self.incarnations[begin + 1 :] >= self.incarnations[begin:-1]
        breaks = np.flatnonzero(~follows)
        return begin + 1 + int(breaks[0]) if len(breaks) else len(self.lsns)

    def window(self, data: Bytes, lsn: int, begin: int, end: int) -> Window:
        """Those from *begin* to *end*, of the data at *lsn*."""
        some = slice(begin, end)
        end_lsn = int(self.ends[end - 1])
        return Window(data, lsn, self.lsns[some], self.counts[some], self.incarnations[some], end_lsn)

    def without(self, at: int) -> _Candidates:
        fields = {name: np.delete(field, at) for name, field in self._asdict().items()}
        return _Candidates(**fields)
