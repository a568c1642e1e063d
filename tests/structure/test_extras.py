"""Tests that tools and their scanner work without the extras; only the views require pyarrow."""

from __future__ import annotations

import subprocess
import sys

from .modules import MODULES

WITHOUT = ("pyarrow", "pandas", "duckdb", "pyspark", "matplotlib", "psycopg")


def test_tools_and_scanner_import_no_extras() -> None:
    places = ("tools.", "analytics.scan.", "analytics.lifetimes.")
    names = [name.removesuffix(".__init__") for name in MODULES if name.startswith(places)]
    program = f"""
import importlib, sys
for name in {WITHOUT}:
    sys.modules[name] = None
for name in {names}:
    importlib.import_module("cairnmq." + name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
