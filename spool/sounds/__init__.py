"""Speech as sounds: phones as a phoneme model hears them, pronunciations, and their alignment."""
