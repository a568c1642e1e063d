"""Commands that analyze journals."""
