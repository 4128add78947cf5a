"""What this machine is: its chip, its memory, its BLAS."""
