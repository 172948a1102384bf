"""Soteria, against plain attackers and attackers who leave the defended layer out."""
