"""Command `python -m bench`: run all benchmarks and print the table."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable

import click
from rich.console import Console

from . import (
    backlog,
    broker,
    cluster,
    embedded,
    forwarding,
    group,
    journal,
    long,
    members,
    parts,
    patterns,
    questions,
    recovery,
    scale,
    settlement,
    sidecars,
    store,
    traffic,
    zeros,
)
from .table import BenchError, Row, as_json, machine, render

CAPTION = """\
Median and extremes of the rounds; ratio: median of the rounds' own ratios to the yardstick. Guessed: before measuring,
see guess_per_s. Yardsticks of the journal, of as many bytes and an fdatasync per group: bare: pwrite of ready bytes;
join: of heads and payloads joined; loop: of heads packed and checksummed in a loop, joined; the stores: a synced
transaction for each group, or for 100 operations of the store. Of the broker: its client alone, the sender joined to
the receiver. Of a deep queue: its twin in memory.
Of a group: its bus alone, given frames of the same size.
accepted: sent until settled; received: sent until received; both at once, every message checked.
A goal with ? could not be judged: the disk was busy, which makes everything equally slow.
* CPU time per message: of the broker + of the client the row is about."""
PARTS = (
    "journal",
    "zeros",
    "settlement",
    "store",
    "traffic",
    "recovery",
    "questions",
    "broker",
    "patterns",
    "parts",
    "scale",
    "forwarding",
    "backlog",
    "long",
    "group",
    "sidecars",
    "cluster",
    "members",
)
WIDTH = 156
"""Width of the table; a narrower terminal wraps lines, which is better than truncated figures."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Run short rounds that measure nothing, as a check.")
@click.option("--json", "as_text", is_flag=True, help="Print JSON instead of a table.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds of each measurement.")
@click.option("--seconds", default=0.5, show_default=True, type=click.FloatRange(0.001), help="Duration of one round.")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Measure only this part. Repeatable.")
@click.option(
    "--messages", default=recovery.DEFAULT_MESSAGES, show_default=True, type=click.IntRange(100),
    help="Messages to recover.",
)  # fmt: skip
@click.option(
    "--backlog", "newcomers", default=members.BACKLOG, show_default=True, type=click.IntRange(100),
    help="Messages sent to a member that joins a cluster.",
)  # fmt: skip
@click.option("--dir", "directory", type=click.Path(file_okay=False, exists=True), help="Directory of the stores.")
def main(
    quick: bool,
    as_text: bool,
    rounds: int,
    seconds: float,
    only: tuple[str, ...],
    messages: int,
    newcomers: int,
    directory: str | None,
) -> None:
    """Measure journal, store and broker in one run."""
    if quick:
        rounds, seconds, messages = 1, 0.001, min(messages, 2000)
    sys.setswitchinterval(0.0005)  # as the broker does
    connections, queues = (20, 20) if quick else (scale.CONNECTIONS, scale.QUEUES)
    measured: dict[str, Callable[[str], list[Row]]] = {
        "journal": lambda path: journal.measure(path, rounds * 4, seconds / 4),
        "zeros": lambda path: zeros.measure(path, rounds * 4, seconds / 4),
        "settlement": lambda path: settlement.measure(path, rounds * 4, seconds / 4),
        "store": lambda path: store.measure(path, rounds, seconds, messages // 2),
        "traffic": lambda path: traffic.measure(path, rounds, seconds * 4, 200 if quick else traffic.BACKLOG),
        "recovery": lambda path: recovery.measure(path, rounds, messages),
        "questions": lambda path: questions.measure(path, rounds, messages * 512),
        "broker": lambda path: broker.measure(path, rounds, seconds),
        "patterns": lambda path: patterns.measure(path, rounds, seconds),
        "parts": lambda path: parts.measure(path, rounds, seconds * 4),
        "scale": lambda path: scale.measure(path, rounds, seconds, connections, queues),
        "forwarding": lambda path: forwarding.measure(path, rounds, seconds),
        "backlog": lambda path: backlog.measure(path, rounds, seconds),
        "long": lambda path: long.measure(path, rounds, (1 << 20) if quick else (1 << 30), 20 if quick else 300),
        "group": lambda path: group.measure(path, rounds, seconds),
        "sidecars": lambda path: sidecars.measure(path, rounds, seconds),
        "cluster": lambda path: cluster.measure(path, rounds, seconds),
        "members": lambda path: members.measure(path, rounds, seconds, 500 if quick else newcomers),
    }
    for line in (*embedded.left_out(), *parts.left_out(), *group.left_out(), *members.left_out()):
        print(f"bench: {line}", file=sys.stderr)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cairnmq-bench-", dir=directory) as path:
        found = machine(path)
        try:
            for name in only or PARTS:
                rows += measured[name](os.path.join(path, name))
                shutil.rmtree(os.path.join(path, name), ignore_errors=True)  # some parts create no directory
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            sys.exit(1)
    if as_text:
        print(json.dumps({"machine": found, "rounds": rounds, "seconds": seconds, "rows": as_json(rows)}, indent=1))
        return
    title = f"{rounds} rounds of {seconds:g} s; {', '.join(f'{key} {value}' for key, value in found.items())}"
    render(Console(width=max(Console().width, WIDTH)), rows, title, CAPTION)


if __name__ == "__main__":
    main()
