"""Client steps, what an attacker sees of them, aggregation and partitions."""
