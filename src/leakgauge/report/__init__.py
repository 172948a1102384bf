"""AuditReport -> html | json | markdown | junit."""
