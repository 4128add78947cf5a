"""`spool graph`: builds decoding graphs, which workers search."""
