"""A small Flower app on handwritten digits: ten clients, one picture each. It knows nothing of Leakgauge."""
