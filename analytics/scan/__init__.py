"""Containers read by numpy, without a step per record, and selections of records. Arrow is not needed."""
