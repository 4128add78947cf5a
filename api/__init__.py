"""The HTTP API, the web page and the command line client. Imports no model."""
