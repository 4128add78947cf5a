"""Qwen3-ASR: an audio encoder, and a decoder-only language model that reads its frames (Qwen team, 2026)."""
