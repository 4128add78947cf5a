"""Cost lines: written with the work they pay for, summed for reports."""
