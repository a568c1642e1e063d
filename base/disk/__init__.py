"""Files: the real ones, and their faulty twins in memory. The journal sees only the protocols of `seam`."""
