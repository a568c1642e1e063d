"""What a member is to its cluster: the phases of `core`, in order."""

from __future__ import annotations

OUTSIDE, FOUNDING, WIPING, ASKING, UPDATING, SYNCED = "outside", "founding", "wiping", "asking", "updating", "synced"
