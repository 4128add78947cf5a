"""Decoding graphs (weighted finite-state transducers): their file, and how one is built. numpy is imported by
whoever uses them alone; kaldifst and kaldilm only to build."""
