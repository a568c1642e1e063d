"""Summaries and explanations of a store: what it holds, and why it holds it."""
