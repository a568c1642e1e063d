"""Commands that talk to a running broker, and the users file."""
