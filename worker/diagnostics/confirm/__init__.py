"""`spool-worker confirm`: confirms on this machine what was tested elsewhere."""
