"""How the server weighs a round's clients and what step it takes: one public module per aggregator."""
