"""Sums that the server computes on ciphertexts: one public module per scheme, behind one interface."""
