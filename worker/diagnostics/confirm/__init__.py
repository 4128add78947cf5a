"""Confirms on a Mac what was built elsewhere: engine and kernels against their references."""
