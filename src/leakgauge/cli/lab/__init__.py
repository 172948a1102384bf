"""`leakgauge lab`: what reproduces papers, one module per command."""
