"""Whisper beside faster-whisper, mlx-whisper and openai-whisper, on the same weights and the same audio."""
