"""All defenses at two strengths on one fixed scenario per data set, ranked by what the strongest attacker recovers."""
