"""Drabent et al. 2022: automatic transformation search, replicated."""
