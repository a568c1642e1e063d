"""Replicates queues on several brokers: a totally ordered group, and the events that its members exchange."""
