"""The examples that the API's description shows."""
