"""Leaves out what this machine has no tool for; see `needs`."""

from tests.watch.needs import left_out

collect_ignore = left_out
