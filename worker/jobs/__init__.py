"""One job's way through a worker: claim, fetch, attempt, save, stitch, deliver, end."""
