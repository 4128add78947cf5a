"""Leaves out what this machine has no server for; see `pgbouncer`."""

from tests.live.pgbouncer import left_out

collect_ignore = left_out
