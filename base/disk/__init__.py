"""Files on the disk. The journal sees only the protocols of `seam`, see `base.testing` for their twins in memory."""
