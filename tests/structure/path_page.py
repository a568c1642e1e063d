"""Generator of docs/PATH.md from a trace: `python -m tests.structure.path_page`."""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path

from .modules import ROOT
from .tracing import Figures, Trace, traced

HEAD = """# The path of a durable message

One message of 200 bytes goes from a sender to a receiver of the same queue. This page lists the
functions that it passes, in the order in which the threads of the broker enter them.
`python -m tests.structure.path_page` writes the page from a trace of a live broker, and
`tests/structure/test_path.py` compares its files with a new trace. See
[glossary.md](reference/glossary.md) for the terms, and [ARCHITECTURE.md](../ARCHITECTURE.md) for
the overview.

{calls} calls in {files} files, {stays} stays in a file, {climbs} moves to a higher layer. A worker
reads the socket and plays the core; the flusher makes the message durable; the worker answers the
sender and forwards the message.
"""
ROLES = {"worker": "Worker, which also plays the core", "flusher": "Flusher"}
FIRST = "Terminal.feed"
"""Function that receives bytes read from the socket. Entries before it end the turn of the previous message."""


def section(thread: str, trace: Trace) -> str:
    """Return the stays of one thread, in order; a file that was entered before shows new functions only."""
    title = next((text for role, text in ROLES.items() if role in thread), thread)
    entries = trace[thread]
    first = next((number for number, entry in enumerate(entries) if entry.function == FIRST), 0)
    lines = [f"\n## {title}\n", "| file | functions |", "|---|---|"]
    seen: set[tuple[str, str]] = set()
    for path, stay in groupby([*entries[first:], *entries[:first]], lambda entry: entry.path):
        functions = list(dict.fromkeys(entry.function for entry in stay if tuple(entry) not in seen))
        seen.update((path, function) for function in functions)
        if functions:
            lines.append(f"| `{path}` | {', '.join(f'`{function}`' for function in functions)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the complete page for the message that passes the most files, as it waited for its flush."""
    with tempfile.TemporaryDirectory() as directory:
        traces = traced(Path(directory) / "store")
    trace = max(traces[1:], key=lambda trace: len({entry.path for entries in trace.values() for entry in entries}))
    figures = Figures.of(trace.values())
    return HEAD.format(**vars(figures)) + "".join(section(thread, trace) for thread in sorted(trace, reverse=True))


if __name__ == "__main__":
    (ROOT / "docs" / "PATH.md").write_text(page())
