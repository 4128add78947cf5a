"""The subcommands for the archive: search, review, corrections and versions of recordings."""
