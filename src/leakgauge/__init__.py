"""Leakgauge measures what a federated-learning update gives away."""
