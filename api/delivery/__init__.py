"""What the server sends by itself: events as a stream, and webhooks."""
