"""From encoder frames to hypotheses and words. `search.search` is the one face."""
