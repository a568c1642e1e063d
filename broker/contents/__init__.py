"""Messages on a queue: their order, reading, expiry and pages, and the policy of the queue."""
