"""Message stores on in-memory tables with a write log."""
