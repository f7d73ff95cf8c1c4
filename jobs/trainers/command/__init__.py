"""The trainer `command`: any program that follows the run protocol."""
