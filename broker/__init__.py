"""Drivers: queues, and who may take what from them. Core-side code: one thread at a time."""
