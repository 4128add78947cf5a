"""A decoding graph over real phonemes: made of pocketsphinx' dictionary and trigram, and measured."""
