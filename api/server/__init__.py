"""The server's processes: one, or a pool of them on one socket."""
