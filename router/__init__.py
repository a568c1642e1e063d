"""Workers whose terminals speak AMQP, and the core that decides."""
