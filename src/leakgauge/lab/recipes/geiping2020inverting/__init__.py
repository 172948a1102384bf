"""Geiping et al. 2020: Inverting Gradients, cosine matching against Euclidean matching."""
