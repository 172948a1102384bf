"""Everything that a scenario names, loaded and checked before anything runs."""
