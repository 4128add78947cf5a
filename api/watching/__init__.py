"""Watches folders and buckets, and submits what is new in them."""
