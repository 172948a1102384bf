"""Wei et al. 2021: noise at every local step or once per round (Fed-CDP, Fed-SDP), and what is promised for it."""
