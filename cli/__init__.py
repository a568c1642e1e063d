"""The cairnmq command."""
