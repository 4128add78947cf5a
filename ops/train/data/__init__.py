"""Training data: recordings, synthetic speech, augmentation, batches."""
