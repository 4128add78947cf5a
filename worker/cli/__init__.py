"""The `spool-worker` command: argument parsing and output, one module a command."""
