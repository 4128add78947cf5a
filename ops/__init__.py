"""Tools of those who develop and run Spool; nothing here is installed."""
