"""Commands on the history of a store."""
