"""The ground floor: errors and the clock. It imports nothing of CairnMQ."""
