"""A federation small enough to draw: two features, two classes, a Gaussian per class and client."""
