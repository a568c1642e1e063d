"""Local and distributed transactions, dead letters."""
