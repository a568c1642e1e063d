"""Options; chooses the parts and joins them into a running broker."""
