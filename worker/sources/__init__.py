"""Fetches recordings: uploads, files, S3 objects and https addresses."""
