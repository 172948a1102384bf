"""How many labels of a batch each counting rule recovers: our own tables, of no paper."""
