"""Management: looking into a running broker and changing it, by AMQP messages to the node `$management`."""
