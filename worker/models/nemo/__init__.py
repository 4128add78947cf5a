"""NVIDIA NeMo's FastConformer models: their configuration and their network."""
