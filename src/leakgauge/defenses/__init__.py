"""One public module = one defence, its adaptive attack beside it."""
