"""Sizes and times as people read them."""

from __future__ import annotations


def size_text(size_bytes: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 100 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def age_text(seconds: float) -> str:
    """A time as people read it, in its two largest units."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    left, reported = int(seconds), []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= size:
            reported.append(f"{left // size} {unit}")
            left %= size
    return " ".join(reported[:2])
