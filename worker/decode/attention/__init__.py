"""Label-looping search over attention decoders."""
