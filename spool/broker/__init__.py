"""Redis: the Celery application that carries job ids, and the embedded server."""
