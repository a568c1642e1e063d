"""Clients of the web console, for tests."""
