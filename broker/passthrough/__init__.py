"""Unsettled pass-through routing: anycast and multicast addresses."""
