"""The subcommands that look into the archive: search, versions of recordings."""
