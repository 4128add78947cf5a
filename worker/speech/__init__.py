"""Is anyone speaking: the speech detector, spans of its probabilities, and what follows for words."""
