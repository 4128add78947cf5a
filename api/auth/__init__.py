"""Authentication and authorization: API keys, principals, rate limits and signed URLs."""
