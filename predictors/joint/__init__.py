"""Setup and service drawn together: what they share is drawn once, and every draw has a key of its own."""
