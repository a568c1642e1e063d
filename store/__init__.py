"""What is true: messages, transactions and wiring, behind the MessageStore interface."""
