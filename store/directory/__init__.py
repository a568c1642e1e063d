"""The store directory: its kind, its lock, and holds."""
