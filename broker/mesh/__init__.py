"""Networks of brokers: neighbors, topology, transit."""
