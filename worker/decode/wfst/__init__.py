"""Search of a decoding graph (WFST) over a CTC head, its lattice and its n-best list."""
