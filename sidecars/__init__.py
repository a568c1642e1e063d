"""What stands beside a log's containers: the heads of their records as Parquet. A cache, made off the broker's path."""
