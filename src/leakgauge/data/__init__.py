"""Embedded data, readers for the standard formats, and your own data."""
