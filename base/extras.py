"""The commands that install the optional features of the package."""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Return the remedy for an error about a missing package of *extra*.

    The name of the package is not published on an index, so it is installed from a checkout, or from a wheel.
    """
    return f"in a checkout of CairnMQ: pip install '.[{extra}]'; with a wheel: pip install 'FILE.whl[{extra}]'"
