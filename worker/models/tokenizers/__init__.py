"""From text to tokens and back; families choose among these."""
