"""AMQP 1.0 over proton's engine: bytes in, events out; no socket, no thread, no clock."""
