"""Zhu et al. 2019: Deep Leakage from Gradients, as later papers measured it, beside iDLG."""
