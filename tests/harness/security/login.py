"""Outcome codes of SASL."""

from __future__ import annotations

OK, AUTH, SYS_TEMP = 0, 1, 4
