"""Models of NVIDIA NeMo: their configuration and their parts."""
