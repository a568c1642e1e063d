"""A small AMQP client, for tools and tests."""
