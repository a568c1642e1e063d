"""The web console: an HTTP server beside the broker, and a client of the broker's management."""
