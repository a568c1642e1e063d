"""Time on the core: scheduled actions, background work in time slices, throttled senders."""
