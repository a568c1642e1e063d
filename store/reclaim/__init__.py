"""Space of the journal: what a container still holds, and how containers are reclaimed."""
