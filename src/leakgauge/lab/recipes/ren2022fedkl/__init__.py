"""FedKL's tables: accuracy with and without the key, and what leaks with the lock and with BatchNorm alone."""
