"""How large the batches are that peeling recovers."""
