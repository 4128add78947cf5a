"""What is stored about transcripts: passages, corrections, reviews, speakers, and which may be reused."""
