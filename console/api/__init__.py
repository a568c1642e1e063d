"""Endpoints of the HTTP API, and their OpenAPI description."""
