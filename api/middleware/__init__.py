"""What wraps every request: allowed hosts and origins, log lines, log context, slow requests."""
