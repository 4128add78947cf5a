"""The domain rules. Pure: no storage, no settings, and no clock except one passed in."""
