"""What is stored of transcripts beside their words: who speaks in them, and which may be reused."""
