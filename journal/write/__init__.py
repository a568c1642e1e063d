"""The live journal: appends, flushes, the slots of the log and its start."""
