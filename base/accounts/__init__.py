"""Accounts: who may log in, and how a password is proved without being kept."""
