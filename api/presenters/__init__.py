"""Records of the store as the API shows them."""
