"""Space of the journal: what a container still holds, and how it is given back."""
