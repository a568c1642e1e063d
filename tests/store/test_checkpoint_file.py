"""Tests of the checkpoint's LMDB file: it grows when needed, survives killed readers, and its damage is detected."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.store.checkpoint import checkpoint_file
from cairnmq.store.checkpoint.checkpoint_file import BadCheckpoint, LmdbFile, sealed, unsealed

KEYS = st.binary(min_size=2, max_size=9)


def last(entries: int) -> tuple[bytes, bytes]:
    return b"m", sealed(b"m", str(entries).encode())


def entry(key: bytes, body: bytes) -> tuple[bytes, bytes]:
    return key, sealed(key, body)


@given(commits=st.lists(st.tuples(st.booleans(), st.dictionaries(KEYS, st.none() | st.binary(max_size=3000)))))
@settings(max_examples=20)
def test_what_was_committed_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[bool, dict[bytes, bytes | None]]]
) -> None:
    path = str(tmp_path_factory.mktemp("checkpoint"))
    model: dict[bytes, bytes] = {}
    file = LmdbFile(path)
    for clear, bodies in commits:
        changes = {key: None if body is None else sealed(key, body) for key, body in bodies.items()}
        file.commit({b"m": None, **changes}, last, clear=clear)
        model = {} if clear else model
        model |= {key: value for key, value in changes.items() if value is not None}
        model = {key: value for key, value in model.items() if changes.get(key, b"") is not None}
    if not commits:
        return
    again = LmdbFile(path)
    assert again.load() == model | dict([last(len(model))])


def test_the_map_grows_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "_FIRST_MAP_BYTES", 1 << 16)
    file = LmdbFile(str(tmp_path))
    entries = dict(entry(b"p" + bytes([n]), os.urandom(200_000)) for n in range(10))
    file.commit(entries, last, clear=True)
    file.commit({}, last, clear=False)
    assert len(LmdbFile(str(tmp_path)).load()) == 11


def test_a_reader_that_was_killed_keeps_no_old_pages(tmp_path: Path) -> None:
    file = LmdbFile(str(tmp_path))
    body = os.urandom(100_000)
    file.commit(dict([entry(b"p1", body)]), last, clear=True)
    script = (
        "import lmdb, os, sys, signal\n"
        "env = lmdb.open(sys.argv[1]); txn = env.begin(); txn.get(b'p1')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    file = LmdbFile(str(tmp_path))
    for _ in range(50):
        file.commit(dict([entry(b"p1", body)]), last, clear=False)
    assert (tmp_path / "data.mdb").stat().st_size < 10 * len(body)


@pytest.mark.parametrize("how", ["cut", "zeroed", "junk", "flipped", "a directory", "empty"])
def test_a_file_that_is_not_whole_is_bad_or_gives_what_was_committed(tmp_path: Path, how: str) -> None:
    """Damaged LMDB pages may crash the process that reads them, which must not be this process."""
    rng = random.Random(how)
    for _ in range(8 if how in ("flipped", "junk") else 2):
        path = tmp_path / str(rng.random())
        file = LmdbFile(str(path))
        keys = [b"p" + n.to_bytes(8, "big") for n in range(60)]
        entries = dict(entry(key, rng.randbytes(rng.choice((20, 3000, 9000)))) for key in keys)
        file.commit(entries, last, clear=True)
        data = path / "data.mdb"
        content = bytearray(data.read_bytes())
        match how:
            case "cut":
                del content[rng.randrange(len(content)) :]
            case "zeroed":
                at = rng.randrange(0, len(content), 4096)
                content[at : at + 4096] = bytes(4096)
            case "junk":
                at = rng.randrange(0, len(content) - 4096, 512)
                content[at : at + 4096] = rng.randbytes(4096)
            case "flipped":
                for _ in range(20):
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            case "empty":
                content.clear()
        data.unlink()
        if how == "a directory":
            data.mkdir()
        else:
            data.write_bytes(content)
        again = LmdbFile(str(path))
        try:
            found = again.load()
        except BadCheckpoint:
            again.discard()
            assert not path.exists()
        else:
            for key, value in found.items():
                unsealed(key, value)
            assert found.items() <= (entries | dict([last(60)])).items()


def test_a_directory_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    with pytest.raises(BadCheckpoint, match="can't be written"):
        LmdbFile(str(tmp_path / "in the way")).commit({}, last, clear=True)
