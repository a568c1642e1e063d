"""Group communication: bus, frames, membership, corosync."""
