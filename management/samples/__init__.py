"""Samples of the broker and its queues: their figures over an hour and a day, in bounded memory."""
