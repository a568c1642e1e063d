"""Checks of a host and a store with remedies, and bundles of diagnostic data without secrets."""
