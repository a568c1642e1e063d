"""Recovery: rebuilds the in-memory maps of a store from its journal and SQL."""
