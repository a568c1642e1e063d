"""The message store on an SQL database."""
