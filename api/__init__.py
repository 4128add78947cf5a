"""The HTTP face, the page and the client command. Knows jobs and stores; knows no model."""
