"""The examples of the OpenAPI page; a test validates each against its schema."""
