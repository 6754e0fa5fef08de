"""Arithmetic on distributions that a planner asks for: chances of meeting a deadline, latest safe starts."""
