"""Leaves out what this machine cannot compile (`tests.kernels.needs`)."""

from tests.kernels.needs import left_out

collect_ignore = left_out
