"""Journals as Arrow tables: records, messages, queues, transactions, containers. Nothing is ever written."""
