"""Readers of model files: NeMo archives and safetensors."""
