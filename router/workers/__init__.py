"""Threads that own connections: their sockets, and the turns in which these are read and written."""
