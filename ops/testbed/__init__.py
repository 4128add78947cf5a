"""Servers, workers and models that tests, benchmarks and the soak test share."""
