"""Options of the search that are more than single values."""
