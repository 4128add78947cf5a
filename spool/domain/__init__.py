"""The rules of Spool as plain data and arithmetic: no SQL, no network, no settings, no clock."""
