"""The AMQP 0-9-1 protocol with RabbitMQ's extensions: frames, field tables, contents and their conversion."""
