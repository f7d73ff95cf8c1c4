"""The program of a `command` run: its files, their hashes and its id."""
