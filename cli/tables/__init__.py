"""Tables for people: their layout, and values as texts."""
