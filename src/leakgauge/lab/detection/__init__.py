"""How often `leakgauge inspect` finds a tampering server, and how often it cries wolf: a study on models of our own."""
