"""Nodes and their addresses: exchanges, bindings, subscriptions, access rules."""
