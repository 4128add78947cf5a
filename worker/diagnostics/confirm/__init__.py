"""`spool-worker confirm`: proves on this machine what was proven elsewhere."""
