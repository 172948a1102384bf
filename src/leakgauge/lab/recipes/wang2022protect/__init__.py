"""Wang et al. 2022: noise on a few slices of the update, taken out again by the server."""
