"""Quotas and shares of users."""
