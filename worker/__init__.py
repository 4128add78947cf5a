"""One Celery process a machine: audio in, words out. Knows jobs and the engine; knows no HTTP."""
