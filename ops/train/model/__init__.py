"""The network in PyTorch, its loss, and the way to and from Spool's weights."""
