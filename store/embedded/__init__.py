"""The store for a program without a broker."""
