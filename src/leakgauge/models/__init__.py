"""The zoo, layer by layer as the papers have it, and your own model."""
