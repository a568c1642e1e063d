"""Salvage of damaged stores, and quarantine."""
