"""Speech detection: the network, the spans of its probabilities, and their use in checking words."""
