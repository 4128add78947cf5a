"""The message broker: the Celery application and a Redis-compatible server of our own."""
