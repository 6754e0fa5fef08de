"""Learning durations: distributions, hazards, locations, and arithmetic on plans."""
