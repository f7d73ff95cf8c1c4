"""The end of a worker: when and why it leaves, and the jobs that it submits then."""
