"""Connections of AMQP 0-9-1 clients: their channels, publishers and consumers, as terminals of the drivers."""
