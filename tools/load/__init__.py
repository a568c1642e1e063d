"""Loading, sending and calibrating."""
