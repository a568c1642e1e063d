"""How the wiring's schema came to be: one Alembic revision per version, each the step from the one before.

What was released is never changed again; a new version is a new file here and a new `VERSION` in
`store/wiring/schema.py`.
"""
