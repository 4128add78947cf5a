"""Sends events to whoever subscribed: server-sent events and webhooks."""
