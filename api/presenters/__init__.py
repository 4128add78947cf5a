"""Turns the store's records into the API's answers."""
