"""Management requests and responses."""
