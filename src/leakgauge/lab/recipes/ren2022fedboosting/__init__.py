"""Ren et al., FedBoosting."""
