"""Jobs whose words are given: an existing transcript gets its times."""
