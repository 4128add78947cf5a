"""The API's description: texts and examples beyond what the handlers declare."""
