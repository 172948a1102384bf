"""How far peeling carries."""
