"""View changes, bootstrap and state transfer to joining members."""
