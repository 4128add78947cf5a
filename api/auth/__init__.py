"""Who calls, what they may do and how often: keys, principals, rate limits, signed links."""
