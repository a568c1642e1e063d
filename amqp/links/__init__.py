"""State of one link: credit, unsettled deliveries, sending, resuming."""
