"""The broker: queues, exchanges and the drivers of links. Core-side code: one thread at a time."""
