"""From findings to what an audit concludes."""
