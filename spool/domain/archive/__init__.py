"""The words of an archive as they are searched and compared. Pure."""
