"""The same queues on several brokers: a totally ordered group, and what is said in it."""
