"""Readers of past states of a store, each in a process of its own."""
