"""Admission of connections: login, throttles, networks, shares of users."""
