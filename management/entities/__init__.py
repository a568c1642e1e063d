"""Entity types of management: queues, exchanges, connections, users, federation."""
