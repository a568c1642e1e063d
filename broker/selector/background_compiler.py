"""Compiles the selectors of clients on a separate thread. Core only.

Compiling 2 KiB takes some 6 ms, so a thread beside the core does it, one selector after the other. Users take turns
(connections, without logins), and each may have `CHARACTERS_PER_S` compiled: further requests wait. A selector in the
cache is available at once.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from ...base.clock import Clock
from ..kernel.loader import Submit
from ..scheduling.scheduler import Scheduler
from .compiler import MAX_CHARACTERS, Selector, SelectorError, selector

DEFAULT_SIZE_BYTES = 2048
CHARACTERS_PER_S = 40_000
"""The rate of compilation per user: 20 selectors of the default length, or some hundred short ones."""
BURST_CHARACTERS = 16 << 10
FEWEST_CHARACTERS = 64
"""The characters that a short selector counts for."""
MOST_WAITING = 1024
"""Selectors of one user that wait to be compiled."""
MOST_KEPT = 128
"""The number of compiled selectors in the cache, as clients often send the same ones."""
Then = Callable[[Selector | SelectorError], None]


class _Owner:
    """A user whose selectors wait."""

    def __init__(self, now_s: float) -> None:
        self.waiting: deque[tuple[str, Then]] = deque()
        self.characters = float(BURST_CHARACTERS)
        """The number of characters that may be compiled now."""
        self.counted_s = now_s

    def delay_s(self, now_s: float) -> float:
        """Return the seconds until the first selector may be compiled."""
        earned = (now_s - self.counted_s) * CHARACTERS_PER_S
        self.characters, self.counted_s = min(BURST_CHARACTERS, self.characters + earned), now_s
        return max(0.0, (min(BURST_CHARACTERS, _counted(self.waiting[0][0])) - self.characters) / CHARACTERS_PER_S)


class Compiler:
    """The compiler of the selectors of one broker's clients."""

    def __init__(
        self, clock: Clock, scheduler: Scheduler, submit: Submit, post: Callable[..., None], size_bytes: int
    ) -> None:
        """*submit* runs work on a thread beside the core; *size_bytes*: the longest selector of a client."""
        self._clock = clock
        self._scheduler = scheduler
        self._submit = submit
        self._post = post
        self._size_bytes = size_bytes
        self._kept: OrderedDict[str, Selector] = OrderedDict()
        self._owners: dict[object, _Owner] = {}
        """Users with waiting selectors, and those that have used up their rate; the first one's turn is next."""
        self._is_busy = self._is_timed = False

    def too_long(self, text: str) -> str | None:
        """Return the reason why a client may not use the selector *text*; None if it may."""
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
        if size_bytes <= self._size_bytes:
            return None
        limit = f"the limit is {self._size_bytes} (--max-selector-size)"
        return f"the selector has {size_bytes} bytes, {limit}: shorten it, or raise the limit"

    def compile(self, text: str, owner: object, then: Then) -> None:
        """*then* gets the selector, or the reason to refuse it: at once from the cache. *owner*: the user in turn."""
        kept = self._kept.get(text)
        if kept is not None:
            self._kept.move_to_end(text)
            then(kept)
            return
        of = self._owners.get(owner)
        if of is None:
            of = self._owners[owner] = _Owner(self._clock.monotonic_s())
        if len(of.waiting) >= MOST_WAITING:
            then(SelectorError(0, f"{MOST_WAITING} selectors wait to be compiled: attach fewer links at once"))
            return
        of.waiting.append((text, then))
        self._next()

    def _next(self) -> None:
        """Compile the next one, of the first owner that may."""
        if self._is_busy:
            return
        now_s = self._clock.monotonic_s()
        soonest_s = None
        for owner, of in list(self._owners.items()):
            if not of.waiting:
                if (now_s - of.counted_s) * CHARACTERS_PER_S >= BURST_CHARACTERS:
                    del self._owners[owner]
                continue
            delay_s = of.delay_s(now_s)
            if delay_s > 0:
                soonest_s = delay_s if soonest_s is None else min(soonest_s, delay_s)
                continue
            text, then = of.waiting.popleft()
            of.characters -= min(BURST_CHARACTERS, _counted(text))
            del self._owners[owner]
            self._owners[owner] = of  # behind the others
            self._is_busy = True
            self._submit(self._work, text, then)
            return
        if soonest_s is not None and not self._is_timed:
            self._is_timed = True
            self._scheduler.after(soonest_s, self._on_time)

    def _on_time(self) -> None:
        self._is_timed = False
        self._next()

    def _work(self, text: str, then: Then) -> None:
        """Compile on the thread beside the core."""
        found: Selector | Exception
        try:
            found = selector(text)
        except Exception as error:
            found = error
        self._post(self._done, text, then, found)

    def _done(self, text: str, then: Then, found: Selector | Exception) -> None:
        self._is_busy = False
        self._next()
        if isinstance(found, Selector):
            self._kept[text] = found
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            then(found)
        elif isinstance(found, SelectorError):
            then(found)
        else:
            raise found


def _counted(text: str) -> int:
    return min(MAX_CHARACTERS, max(FEWEST_CHARACTERS, len(text)))
