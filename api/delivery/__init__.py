"""What the server sends on its own: event streams and webhooks."""
