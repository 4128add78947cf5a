"""The audit: rules that every database must keep, and the runner that checks them."""
