"""Ren et al. 2022: a generator trained for each update (GRNN), in the figures of Ren's thesis."""
