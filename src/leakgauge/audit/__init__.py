"""One audit, from a scenario to its report."""
