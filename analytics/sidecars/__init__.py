"""Parquet files beside journal containers, with their record heads: a cache, made off the broker's path."""
