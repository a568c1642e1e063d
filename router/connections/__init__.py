"""Connections of clients and of the broker, and the ends of their links."""
