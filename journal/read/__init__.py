"""Readers of a journal: from the beginning to the end, by container header, and behind a live writer."""
