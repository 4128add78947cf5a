"""The soak test: a real stack under load and faults, judged by the audit."""
