"""Journals as tables: scans into Arrow, SQL, Spark, column indexes, exports and reports."""
