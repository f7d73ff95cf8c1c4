"""The files of one attempt."""
