"""Queues: contents, limits, expiry, policies."""
