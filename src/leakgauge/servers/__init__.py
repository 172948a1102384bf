"""One public module = one tampering server."""
