"""The plot of a soak: the broker's log and the live bytes in it over time, and the kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotille

from ...base.errors import CairnError, DiskError
from ...base.extras import install_hint
from .soak import SoakResult

_MIB = 1 << 20


def in_terminal(found: SoakResult, width: int) -> str:
    """Return the plot as lines of text; empty without samples."""
    if len(found.samples) < 2:
        return ""
    figure: Any = plotille.Figure()
    figure.width, figure.height = max(20, width - 24), 14
    figure.x_label, figure.y_label = "seconds", "MiB"
    figure.color_mode = "names"
    figure.with_colors = False
    figure.x_ticks_fkt = lambda value, _: f"{value:.0f}"
    figure.y_ticks_fkt = lambda value, _: f"{value:.1f}"
    figure.set_x_limits(min_=0)
    figure.set_y_limits(min_=0)
    times = [sample.at_s for sample in found.samples]
    figure.plot(times, [sample.log_bytes / _MIB for sample in found.samples], label="log on the disk")
    figure.plot(times, [sample.live_bytes / _MIB for sample in found.samples], label="live messages", marker="*")
    return str(figure.show(legend=True))


def check_png(path: str) -> None:
    """Raises `CairnError` if no picture can be made there: better before a soak than behind it."""
    try:
        import matplotlib as matplotlib
    except ImportError:
        raise CairnError(f"--plot {path}", "matplotlib is not installed", install_hint("plot")) from None
    if not Path(path).absolute().parent.is_dir():
        raise CairnError(f"--plot {path}", "no such directory", "create it, or name another one")
    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise CairnError(f"--plot {path}", "its name ends in none of .png, .svg and .pdf", "rename it")


def write_png(found: SoakResult, path: str) -> None:
    """Raises `DiskError`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots()
    times = [sample.at_s for sample in found.samples]
    axes.plot(times, [sample.log_bytes / _MIB for sample in found.samples], label="log on the disk")
    axes.plot(times, [sample.live_bytes / _MIB for sample in found.samples], label="live messages")
    for number, at_s in enumerate(found.kills_s):
        axes.axvline(at_s, color="0.7", linewidth=0.6, zorder=0, label="kills" if not number else None)
    axes.set(xlabel="seconds", ylabel="MiB", ylim=(0, None), xlim=(0, None))
    axes.set_title(found.line(), fontsize=7, wrap=True)
    axes.legend(loc="upper left")
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise DiskError(path, f"the plot can't be written: {error.strerror}", "name another --plot") from error
