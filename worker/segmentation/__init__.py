"""From audio to utterances of bounded length, and from their words back to one transcript."""
