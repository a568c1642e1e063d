"""Past states of a store: trace, points in time, queue history."""
