"""How many labels of a batch each counting rule reads: a table of our own, no paper's."""
