"""Commands on a store directory."""
