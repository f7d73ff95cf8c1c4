"""Bring the files of a job on a cloud instance to its store."""
