"""The message map: which messages exist, on which queues, and the parts of the log that they need."""
