"""Updates that were saved or recorded, and whether they are what they are claimed to be."""
