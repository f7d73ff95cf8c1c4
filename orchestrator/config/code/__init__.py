"""The user's project: its files, the snapshot kept with a sweep, and the id of a program."""
