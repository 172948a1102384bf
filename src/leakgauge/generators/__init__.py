"""Pictures out of a few numbers: generators that an attacker can have, made, saved, read and drawn from."""
