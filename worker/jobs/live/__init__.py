"""A live session as a job: its log is read, heard, and saved final by final."""
