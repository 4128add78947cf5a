"""Checks and measurements of this machine: check, bench, calibration, confirm."""
