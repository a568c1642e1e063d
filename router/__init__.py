"""Terminals: workers that speak AMQP and the core that decides."""
