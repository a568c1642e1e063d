"""A cluster lab in network namespaces."""
