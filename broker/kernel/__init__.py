"""Services that every part of the core shares: scheduling, commit queue, memory budget."""
