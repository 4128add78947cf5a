"""Who asks: API keys, principals, rate limits and signed URLs."""
