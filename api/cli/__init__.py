"""The `spool` command."""
