"""One public module = one published attack; `_parts` holds what several share."""
