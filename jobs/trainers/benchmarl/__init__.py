"""The trainer `benchmarl`."""
