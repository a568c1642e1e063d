"""The users file: one line per user, with the verifier of the password.

    cairnmq-users 1 <key>
    <name>:SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>

Keys and salts are Base64. The *key* of the first line is a secret of the file. Credentials of unknown users are derived
from it. An unknown name always gets the same credentials, so that clients cannot find out which users exist (A10).
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..errors import CairnError, MissingPath, unreadable
from ..secret_files import refuse_exposed
from .credentials import (
    FEWEST_ITERATIONS,
    FEWEST_SALT_BYTES,
    ITERATIONS,
    KEY_BYTES,
    MOST_ITERATIONS,
    Credentials,
    canonical_name,
)

log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
"""The name of anonymous clients in access rules; no user can have it."""
EVERYBODY = "*"
"""The name for all users in access rules; not allowed as the name of a user."""
MAX_NAME_BYTES = 255
MAX_FILE_BYTES = 64 << 20

_MAGIC, _FORMAT = "cairnmq-users", "1"
_HASH = "SCRAM-SHA-256"
_REMEDY = "correct the line, or remove it and add the user again with `cairnmq users add`"


class Users(NamedTuple):
    """The content of a users file."""

    decoy_key: bytes
    accounts: dict[str, Credentials]
    usual_iterations: int = ITERATIONS
    """The number of iterations that most accounts have."""

    def find(self, name: str) -> Credentials:
        """Return the credentials of *name*; for an unknown name a realistic decoy that no password matches."""
        seed = hmac.digest(self.decoy_key, name.encode("utf-8", "surrogatepass"), hashlib.sha512)
        decoy = Credentials(seed[:KEY_BYTES], secrets.token_bytes(KEY_BYTES), seed[KEY_BYTES:], self.usual_iterations)
        return self.accounts.get(name, decoy)


def invalid_name_reason(name: str) -> str:
    """Return the reason why *name* is not a valid user name; empty if it is valid."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"a user's name has 1 to {MAX_NAME_BYTES} bytes"
    if not name.isprintable() or any(char in ": " for char in name) or name.startswith("#"):
        return "a user's name has no spaces, colons or control characters, and does not begin with '#'"
    if canonical_name(name) != name:
        return f"a user's name is in the form that SASLprep gives it, {canonical_name(name)!r}"
    if name == ANONYMOUS:
        return f"{ANONYMOUS!r} is reserved for anonymous clients"
    if name == EVERYBODY:
        return f"{EVERYBODY!r} stands for all users in access rules"
    return ""


def read(path: str) -> Users:
    """Return the users of the file at *path*, which must be protected. Raises `CairnError`."""
    found = _load(path)
    refuse_exposed(path, path)
    return found


def _load(path: str) -> Users:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for its other end
        with open(fd, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise MissingPath(path, "there is no such users file", "make one with `cairnmq users add`") from error
    except OSError as error:
        raise unreadable(path, error, "name a readable users file") from error
    return parse(data, path)


def parse(data: bytes, path: str) -> Users:
    """Decode the users file *data*; *path* is for errors. Raises `CairnError`."""
    if len(data) > MAX_FILE_BYTES:
        raise CairnError(path, f"it is longer than {MAX_FILE_BYTES >> 20} MiB", "not a users file of CairnMQ")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CairnError(path, f"byte {error.start} is not UTF-8", "restore the file from a copy") from error
    head = lines[0].split(" ")
    if len(head) != 3 or head[0] != _MAGIC:
        raise CairnError(f"{path}, line 1", "not a users file of CairnMQ", "make one with `cairnmq users add`")
    if head[1] != _FORMAT:
        raise CairnError(f"{path}, line 1", f"its format {head[1]!r} is newer than this program's", "use a newer one")
    accounts: dict[str, Credentials] = {}
    place = f"{path}, line 1"
    try:
        decoy_key = _unpack(head[2], "key", KEY_BYTES, KEY_BYTES)
        for number, line in enumerate(lines[1:], 2):
            place = f"{path}, line {number}"
            if not line or line.startswith("#"):
                continue
            name, kept = account(line)
            if name in accounts:
                raise ValueError(f"the user {name!r} is in the file twice")
            accounts[name] = kept
    except ValueError as error:
        raise CairnError(place, str(error), _REMEDY) from error
    counts = Counter(kept.iterations for kept in accounts.values())
    return Users(decoy_key, accounts, counts.most_common(1)[0][0] if counts else ITERATIONS)


def account(line: str) -> tuple[str, Credentials]:
    """Return the name and the credentials of a line. Raises `ValueError`."""
    name, _, secret = line.partition(":")
    reason = invalid_name_reason(name)
    if reason:
        raise ValueError(reason)
    parts = secret.split("$")
    counted, keys = (parts[1].split(":"), parts[2].split(":")) if len(parts) == 3 else ([], [])
    if parts[0] != _HASH or len(counted) != 2 or len(keys) != 2:
        raise ValueError(f"a line is NAME:{_HASH}$ITERATIONS:SALT$STORED-KEY:SERVER-KEY")
    if not (counted[0].isascii() and counted[0].isdigit() and len(counted[0]) <= 8):
        raise ValueError("the iterations are no number")
    iterations = int(counted[0])
    if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"{iterations} iterations; {FEWEST_ITERATIONS} to {MOST_ITERATIONS} are allowed")
    return name, Credentials(
        _unpack(counted[1], "salt", FEWEST_SALT_BYTES, 1024),
        _unpack(keys[0], "stored key", KEY_BYTES, KEY_BYTES),
        _unpack(keys[1], "server key", KEY_BYTES, KEY_BYTES),
        iterations,
    )


def _unpack(text: str, what: str, fewest_bytes: int, most_bytes: int) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        data = b""
    if not fewest_bytes <= len(data) <= most_bytes:
        raise ValueError(f"the {what} is not the Base64 of {fewest_bytes} to {most_bytes} bytes")
    return data


def render(users: Users) -> bytes:
    """The users file that contains these accounts."""

    lines = [f"{_MAGIC} {_FORMAT} {_packed(users.decoy_key)}"]
    lines += [f"{name}:{verifier(kept)}" for name, kept in users.accounts.items()]
    return ("\n".join(lines) + "\n").encode()


def verifier(kept: Credentials) -> str:
    """Return credentials as a line of the file has them."""
    salt, stored_key, server_key, iterations = kept
    return f"{_HASH}${iterations}:{_packed(salt)}${_packed(stored_key)}:{_packed(server_key)}"


def _packed(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def change(path: str, edit: Callable[[dict[str, Credentials]], None]) -> None:
    """Replace the file at *path* by one whose accounts *edit* has changed; create it if it does not exist.

    The replacement is atomic and durable, has mode 0600, and is made by one process at a time. An exception of *edit*
    leaves the file unchanged.
    """
    real = os.path.realpath(path)
    directory, draft = os.path.dirname(real), f"{real}.new"
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            there = os.path.exists(real)
            users = _load(path) if there else Users(secrets.token_bytes(KEY_BYTES), {})
            edit(users.accounts)
            with suppress(FileNotFoundError):  # of one who was killed meanwhile
                os.unlink(draft)
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o600)
                file.write(render(users))
                file.flush()
                os.fsync(fd)
            os.replace(draft, real)
            os.fsync(held)
        finally:
            os.close(held)
    except OSError as error:
        raise CairnError(path, f"can't be written: {error.strerror}", "name a place that can be written to") from error


class UsersFile:
    """The users file of a running broker, read again when it has changed. Any thread.

    While the file can't be read, it has no users: a removed user must not be able to log in because a line is invalid.
    """

    def __init__(self, path: str) -> None:
        """Raises `CairnError` if it can't be read."""
        self.path = path
        self._lock = threading.Lock()
        self._seen = _signature(path)
        self._users = read(path)

    def find(self, name: str) -> Credentials:
        """The credentials of *name* now; some that nothing fits if there is no such user."""
        with self._lock:
            seen = _signature(self.path)
            if seen != self._seen:
                self._reread()
                self._seen = seen
            return self._users.find(name)

    def knows(self, name: str) -> bool:
        """Return whether the users file, as last read, has a user *name*."""
        with self._lock:
            return name in self._users.accounts

    def key_of(self, name: str) -> bytes:
        """Return the stored key of *name* in the users file, as last read; empty for an unknown user."""
        with self._lock:
            kept = self._users.accounts.get(name)
            return b"" if kept is None else kept.stored_key

    def read_again(self) -> Callable[[], None]:
        """Read the file; the returned function activates the result. Raises `CairnError` if the file is invalid."""
        seen, users = _signature(self.path), read(self.path)

        def take() -> None:
            with self._lock:
                self._seen, self._users = seen, users

        return take

    def _reread(self) -> None:
        try:
            self._users = read(self.path)
        except CairnError as error:
            log.error("%s; its users can't log in until then", error, extra={"event": "users.reload-failed"})
            self._users = Users(self._users.decoy_key, {})
        else:
            log.info("%s: reloaded, %d users", self.path, len(self._users.accounts), extra={"event": "users.reloaded"})


def _signature(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
