"""A log's records as tables of others: Parquet in directories by day and queue, Delta Lake, Apache Iceberg."""
