"""How often `leakgauge inspect` finds a tampering server, and how often it raises a false alarm, on our own models."""
