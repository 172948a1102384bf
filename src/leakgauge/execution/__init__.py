"""Who runs the work of an audit, in what pieces, and where the results are kept."""
