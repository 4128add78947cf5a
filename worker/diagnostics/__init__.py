"""What `spool-worker check`, `bench` and `confirm` find out about a machine."""
