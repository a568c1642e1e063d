"""Replicated queues: their leadership, and the application of events to them."""
