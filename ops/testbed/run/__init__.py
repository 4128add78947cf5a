"""Processes that tests start: a worker or an API with the test model and failpoints."""
