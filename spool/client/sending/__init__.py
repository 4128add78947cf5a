"""Recordings on their way past the API: parts of a file, and the call that sends them."""
