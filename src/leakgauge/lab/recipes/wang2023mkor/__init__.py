"""Wang et al. 2023: MKOR, a server that chooses the parameters and reads whole batches."""
