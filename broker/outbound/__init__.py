"""Connections that the broker opens: connectors, link routes, auto-links."""
