"""The contract of each kernel: its reference, its cases and the tolerances that it must meet."""
