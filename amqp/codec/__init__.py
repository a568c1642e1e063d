"""AMQP types, sections and performatives as bytes."""
