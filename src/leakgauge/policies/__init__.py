"""Transformation policies: up to three image operations in a row, found by automatic transformation search (ATS)."""
