"""Output, signals and options that commands share."""
