"""A program of the trainer `command`: its files, their hashes and the id they make."""
