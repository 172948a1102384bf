"""The matching problem: which inputs would have made this update? Attacks that search stand on it."""
