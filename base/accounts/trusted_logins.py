"""The logins that have succeeded before, also before the start of the broker.

The file in the store directory is a table of digests, so that it reveals neither names nor addresses:

| offset | size | field |
|---|---|---|
| 0 | 8 | `CAIRNTL1` |
| 8 | 32 | the key of the digests |
| 40 | 16 each | digests of address and name, the newest last; an incomplete one at the end is ignored |

A file that is lost or damaged costs delays during a flood of guesses, and nothing else, so it is never synced.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import threading
from collections import OrderedDict
from typing import BinaryIO

from ..errors import CairnError
from ..secret_files import refuse_exposed

log = logging.getLogger(__name__)

FILE_NAME = "trusted-logins"
FILE_NAMES = (FILE_NAME, f"{FILE_NAME}.new")
MOST_ENTRIES = 10_000
"""Logins that are kept; those that were used least recently are forgotten."""
_MAGIC = b"CAIRNTL1"
_KEY_BYTES, _DIGEST_BYTES = 32, 16
_HEAD_BYTES = len(_MAGIC) + _KEY_BYTES
_MOST_BYTES = _HEAD_BYTES + 2 * MOST_ENTRIES * _DIGEST_BYTES
"""The size at which the file is replaced by one without forgotten logins."""


class TrustedLogins:
    """Addresses and the names that have logged in from them. Any thread; only `save` uses the disk."""

    def __init__(self, path: str = "") -> None:
        """*path*: the file that keeps them; empty for none."""
        self._path = path
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._unsaved: list[bytes] = []
        self._size_bytes = _MOST_BYTES
        """The size of the file; so that the first addition creates one that does not exist."""
        if path:
            self._read()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, login: tuple[str, str]) -> bool:
        digest = self._digest(login)
        with self._lock:
            return digest in self._known

    def add(self, address: str, name: str) -> bool:
        """Remember a login; return whether `save` has something to write."""
        digest = self._digest((address, name))
        with self._lock:
            is_new = digest not in self._known
            self._known[digest] = None
            self._known.move_to_end(digest)
            while len(self._known) > MOST_ENTRIES:
                self._known.popitem(last=False)
            if is_new and self._path:
                self._unsaved.append(digest)
            return bool(self._unsaved)

    def save(self) -> None:
        """Write new logins to the file. Any thread that may wait for the disk."""
        with self._saving:
            with self._lock:
                data, self._unsaved = b"".join(self._unsaved), []
                known = b"".join(self._known)
            if not data or not self._path:
                return
            try:
                self._append(data, known)
            except OSError as error:
                text = "%s can't be written: %s; logins are trusted again after the next start only when they succeed"
                log.warning(text, self._path, error.strerror, extra={"event": "login.trust-failed"})
                self._path = ""

    def _digest(self, login: tuple[str, str]) -> bytes:
        return hmac.digest(self._key, "\0".join(login).encode("utf-8", "surrogatepass"), "sha256")[:_DIGEST_BYTES]

    def _read(self) -> None:
        try:
            refuse_exposed(self._path, self._path)
            with open(self._path, "rb") as file:
                data = file.read(_MOST_BYTES)
        except OSError:
            return
        except CairnError as error:  # the next addition replaces it
            log.warning("%s; its logins are not trusted", error, extra={"event": "login.trust-failed"})
            return
        if data.startswith(_MAGIC) and len(data) >= _HEAD_BYTES:
            self._key = data[len(_MAGIC) : _HEAD_BYTES]
            ends = range(_HEAD_BYTES + _DIGEST_BYTES, len(data) + 1, _DIGEST_BYTES)
            found = [data[end - _DIGEST_BYTES : end] for end in ends]
            self._known.update(dict.fromkeys(found[-MOST_ENTRIES:]))
            self._size_bytes = len(data) if (len(data) - _HEAD_BYTES) % _DIGEST_BYTES == 0 else _MOST_BYTES

    def _append(self, added: bytes, known: bytes) -> None:
        if self._size_bytes + len(added) > _MOST_BYTES:
            data = _MAGIC + self._key + known
            draft = f"{self._path}.new"
            with _private(draft, os.O_TRUNC) as file:
                file.write(data)
            os.replace(draft, self._path)
            self._size_bytes = len(data)
            return
        with _private(self._path, os.O_APPEND) as file:
            file.write(added)
        self._size_bytes += len(added)


def _private(path: str, flag: int) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flag, 0o600), "wb")
