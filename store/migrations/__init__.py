"""Migrations of the wiring schema: one Alembic revision per version, each the step from the previous one.

A released revision is never changed; a new version is a new file here and a new `VERSION` in `store/wiring/schema.py`.
"""
