"""How well the witness tells invented and lost sentences from true ones."""
