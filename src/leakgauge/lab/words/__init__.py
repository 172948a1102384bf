"""Words that are read from pictures: two clients with different renderers train one recogniser."""
