"""Operations on the contents of queues."""
