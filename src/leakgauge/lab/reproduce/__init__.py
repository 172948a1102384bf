"""What runs a recipe and writes its page: cells, measurements, statistics, finished runs, tables and pictures."""
