"""PRECODE, plain and by attackers who know it."""
