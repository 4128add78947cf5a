"""The rules of the trade, pure: no storage, no settings, no clock but what is passed in."""
