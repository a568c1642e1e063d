"""From journal and SQL to the in-memory maps: how it becomes true again."""
