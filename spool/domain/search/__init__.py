"""What a job asks of the search, beyond single values."""
