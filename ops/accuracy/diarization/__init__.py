"""How well speakers are told apart, and recognised again: the figures of docs/speakers.md."""
