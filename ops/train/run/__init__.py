"""A training run: phases, processes, evaluation."""
