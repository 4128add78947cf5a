"""The `spool-worker` command."""
