"""Where recordings come from: files, the object store, HTTPS."""
