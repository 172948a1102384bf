"""One public module = one defense, its adaptive attack beside it."""
