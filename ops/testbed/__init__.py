"""Servers, stacks, fake models and rows that tests, benchmarks and fuzzers share. Imports no test."""
