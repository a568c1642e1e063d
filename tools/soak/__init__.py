"""The durability soak: clients that record what the broker promised, and the verdict."""
