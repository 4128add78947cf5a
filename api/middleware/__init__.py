"""What happens to every request: origin check, log context, access log, slow requests."""
