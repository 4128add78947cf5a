"""Speech models: one folder a family, and the faces they share."""
