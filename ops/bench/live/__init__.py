"""Live sessions measured: on an engine, and through all of Spool."""
