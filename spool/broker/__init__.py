"""The message broker: the Celery application, signals of live sessions, and an embedded Redis."""
