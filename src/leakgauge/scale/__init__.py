"""Beyond one process: recorded updates of real training, federations and clusters."""
