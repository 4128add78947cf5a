"""Direct uploads: parts of a file, and the call that sends them."""
