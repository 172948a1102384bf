"""`leakgauge train`: federations, and the models and generators that attacks need, one module per command."""
