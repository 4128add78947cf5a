"""`spool graph`: decoding graphs, built here and searched by workers."""
