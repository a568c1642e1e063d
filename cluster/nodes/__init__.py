"""Replicated wiring, cluster queries, and the addresses of members."""
