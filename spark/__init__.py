"""Journals as a data source of Spark, batch and streaming."""
