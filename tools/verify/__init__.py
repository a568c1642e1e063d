"""Verification of a store: blocks, records, checkpoint and wiring against each other, as verdicts."""
