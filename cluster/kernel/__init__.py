"""Values, wire formats and collaborators that the parts of a cluster member share."""
