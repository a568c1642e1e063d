"""The definitions of queues, exchanges and bindings in SQL, and in files beside the journal."""
