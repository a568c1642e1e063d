"""Asynchronous copies of queues at other sites."""
