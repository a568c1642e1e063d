"""Checkpoints of the message store, from which recovery starts."""
