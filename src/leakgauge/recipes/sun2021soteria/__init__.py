"""Soteria, plain and muted."""
