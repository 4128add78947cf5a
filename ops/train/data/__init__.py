"""The training data of the demo model: fetched, synthesized, mixed and checked for what may be used."""
