"""Per-trial gradients, batched optimisers, randomness by trial."""
