"""Frames that proton does not show or does not check."""
