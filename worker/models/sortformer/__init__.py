"""NVIDIA's Sortformer: who speaks in each 80 ms of a recording, four speakers at most."""
