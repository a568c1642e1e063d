"""The containers on the disk: allocation, reuse, archives, open files and durable reads."""
