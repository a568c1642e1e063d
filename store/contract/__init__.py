"""The interface of a message store and the values that cross it."""
