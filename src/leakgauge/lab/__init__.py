"""What reproduces papers and nothing else needs. It imports the rest; the rest never imports it."""
