"""Scores: pure functions with their direction and range."""
