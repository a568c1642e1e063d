"""Feeds of replicated queues to other sites."""
