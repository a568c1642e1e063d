"""The options of a broker; chooses the parts and joins them into a running broker."""
