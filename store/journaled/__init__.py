"""The message store on a journal."""
