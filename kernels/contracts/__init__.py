"""What every kernel must compute: cases, references and tolerances, for any backend."""
