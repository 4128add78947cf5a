"""Checks a live database and its object store against Spool's laws."""
