"""Qwen3-ForcedAligner: Qwen3-ASR's parts, which tell when given words are spoken (Qwen team, 2026)."""
