"""PRECODE, against plain attackers and attackers who know it."""
