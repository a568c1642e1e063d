"""Lifetimes of messages on queues, derived from record tables by numpy; Arrow is not needed."""
