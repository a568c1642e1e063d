"""Tests of the users file: atomic writing, strict reading, and reloading after a change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, ITERATIONS, Credentials, make, prove
from cairnmq.base.errors import CairnError

KEPT = make("a stone", FEWEST_ITERATIONS)


def add(path: Path, name: str, kept: Credentials = KEPT) -> None:
    users.change(str(path), lambda accounts: accounts.update({name: kept}))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_it_is_written_for_nobody_else_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "users"
    before = os.umask(umask)
    try:
        add(path, "anna")
        path.chmod(0o644)  # as if changed by another program
        add(path, "ben")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(users.read(str(path)).accounts) == ["anna", "ben"]
    assert os.listdir(tmp_path) == ["users"]


def test_what_is_kept_proves_the_password_and_is_not_it() -> None:
    assert prove("a stone", KEPT)
    for wrong in ("", "a ston", "A stone", "a\0stone", "\ud800", "x" * 5000):
        assert not prove(wrong, KEPT)
    text = users.render(users.Users(bytes(32), {"anna": KEPT}))
    assert b"stone" not in text
    assert make("a stone", FEWEST_ITERATIONS).stored_key != KEPT.stored_key, "each has a salt of its own"


@given(st.dictionaries(st.text(max_size=20).filter(lambda name: not users.invalid_name_reason(name)), st.just(KEPT)))
def test_what_is_written_is_read(accounts: dict[str, Credentials]) -> None:
    written = users.Users(bytes(range(32)), accounts, FEWEST_ITERATIONS if accounts else ITERATIONS)
    assert users.parse(users.render(written), "users") == written


@given(data=st.binary(max_size=200), at=st.integers(0, 200))
def test_a_broken_file_is_explained(data: bytes, at: int) -> None:
    complete = users.render(users.Users(bytes(32), {"anna": KEPT, "ben": KEPT}))
    error = CairnError("users", "", "none")
    try:
        users.parse(complete[:at] + data + complete[at + len(data) :], "users")
    except CairnError as found:
        error = found
    assert error.place.startswith("users")
    assert error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda text: "", "line 1: not a users file"),
        (lambda text: text.replace("users 1", "users 2"), "newer than this program's"),
        (lambda text: text + text.splitlines()[1], "line 3: the user 'anna' is in the file twice"),
        (lambda text: text.replace("$15000:", "$1:"), "line 2: 1 iterations; 15000 to"),
        (lambda text: text.replace("$15000:", "$99999999:"), "line 2: 99999999 iterations"),
        (lambda text: text.replace("anna:", "an na:"), "line 2: a user's name has no spaces"),
        (lambda text: text.replace("anna:", "anonymous:"), "reserved for anonymous clients"),
        (lambda text: text[:-10], "line 2: the server key is not the Base64 of 32"),
    ],
)
def test_what_is_broken_is_told_by_line(edit: object, complaint: str) -> None:
    assert callable(edit)
    complete = users.render(users.Users(bytes(32), {"anna": KEPT})).decode()
    with pytest.raises(CairnError, match="users") as caught:
        users.parse(edit(complete).encode(), "users")
    assert complaint in str(caught.value)


def test_a_change_is_seen_and_a_broken_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "users"
    add(path, "anna")
    file = users.UsersFile(str(path))
    assert file.find("anna") == KEPT
    add(path, "ben")
    assert file.find("ben") == KEPT
    users.change(str(path), lambda accounts: accounts.__delitem__("anna"))
    assert file.find("anna") != KEPT
    text = path.read_bytes()
    path.write_bytes(text + b"nonsense\n")
    assert file.find("ben") != KEPT
    path.write_bytes(text)
    assert file.find("ben") == KEPT
    path.unlink()
    assert file.find("ben") != KEPT


def test_who_there_is_can_not_be_told_by_asking() -> None:  # A10
    """Unknown names get distinct, constant salts and the usual number of iterations, also after a restart."""
    known = users.parse(users.render(users.Users(bytes(32), {"anna": KEPT})), "users")
    first, again, other = known.find("nobody"), known.find("nobody"), known.find("noone")
    assert first.salt == again.salt != other.salt
    assert len(first.salt) == len(KEPT.salt)
    assert first.iterations == KEPT.iterations
    assert not prove("", first)
    later = users.parse(users.render(known), "users")
    assert later.find("nobody").salt == first.salt, "after a restart, too"
