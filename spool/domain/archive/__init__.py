"""The words of an archive: passages, search, corrections, comparison. Pure."""
