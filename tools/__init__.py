"""Tools beside the broker, never through it: they read journals."""
