"""Which layers of an update suffice for recovery."""
