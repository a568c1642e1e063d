"""Tests of the front-end files: size, absence of external addresses, and no interpretation of text as markup."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[3] / "console/static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MOST_BYTES = 300_000
FORBIDDEN = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")


def test_front_end_is_small() -> None:
    assert 10_000 < sum(len(gzip.compress(path.read_bytes())) for path in FILES) < MOST_BYTES


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_makes_no_markup_of_texts(path: Path) -> None:
    assert FORBIDDEN.findall(path.read_text()) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_names_no_other_site(path: Path) -> None:
    addresses = re.findall(r"(?:https?:)?//[\w-]+\.[\w./-]+", path.read_text())
    assert [one for one in addresses if "www.w3.org" not in one] == []


def test_page_has_no_inline_script_or_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) == []


def test_modules_import_files_that_exist() -> None:
    found = [(path, re.findall(r'^import .* from "(.*)";$', path.read_text(), re.MULTILINE)) for path in SCRIPTS]
    missing = [(path.name, name) for path, names in found for name in names if not (path.parent / name).is_file()]
    assert missing == []
