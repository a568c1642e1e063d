"""The protocol engine of one connection."""
