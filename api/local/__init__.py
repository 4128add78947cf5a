"""The whole of Spool on one machine, for `spool up` and `spool demo`."""
