"""Reading words from pictures: two clients with different renderers train one recogniser."""
