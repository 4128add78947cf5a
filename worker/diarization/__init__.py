"""Speaker diarization: voice prints of short windows, their clusters, and the speaker of each word."""
