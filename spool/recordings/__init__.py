"""Which files are recordings."""
