"""The core: the list of actions, and the thread that plays it."""
