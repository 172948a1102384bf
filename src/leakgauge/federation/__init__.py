"""Federated training: rounds, aggregators, encryption."""
