"""When a given text was spoken, by a CTC model's log-probabilities."""
