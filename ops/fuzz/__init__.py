"""Fuzzers of everything that reads bytes of strangers."""
