"""A complete Spool on this machine: its processes, started and stopped together."""
