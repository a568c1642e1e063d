"""Definitions of options that many commands share, and help that lists options by subject."""
