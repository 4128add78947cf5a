"""Recurrent language models, which read hypotheses of other models."""
