"""Which network addresses may be reached, and HTTP connections that go to those addresses alone."""
