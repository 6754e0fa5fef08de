"""One process owns the store, several answer: what is published to them, what they send back, and who keeps them alive."""
