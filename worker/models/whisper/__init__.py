"""The Whisper family: OpenAI's encoder-decoder (Radford et al. 2022), from four layouts of weights."""
