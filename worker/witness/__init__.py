"""A second recogniser, which hears sounds and knows no words, checks a transcript."""
