"""Queues: dispatch, limits, duplicates, failed deliveries and purges."""
