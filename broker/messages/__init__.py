"""Messages in memory: entries, backlogs, times."""
