"""The tables of the first revision, which is too long for one file."""
