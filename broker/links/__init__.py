"""Producers, consumers and browsers: the broker side of links to nodes."""
