"""Code that reproduces papers. It imports the rest of the package; the rest never imports it."""
