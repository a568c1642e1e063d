"""A load generator and durability soak for AMQP 1.0 brokers; it talks to them over AMQP, and knows none from inside."""
