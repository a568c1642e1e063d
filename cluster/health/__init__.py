"""Liveness, delays and checks of members."""
