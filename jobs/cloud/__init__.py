"""Bring the files of a job on a cloud instance to their store, and the stores."""
