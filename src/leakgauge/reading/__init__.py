"""Files that come from elsewhere: nothing in them runs, and nothing is allocated that they do not hold."""
