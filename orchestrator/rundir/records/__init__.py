"""The ledger and the journals, and the state of a run that follows from them."""
