"""Wei et al. 2020: what helps and what hinders client privacy leakage attacks (CPL)."""
