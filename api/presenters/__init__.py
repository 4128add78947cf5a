"""Converts records of the store into the API's answers."""
