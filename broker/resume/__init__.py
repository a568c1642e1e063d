"""Links whose state survives their connection."""
