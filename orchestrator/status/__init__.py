"""One state per run, from the ledger, the journals and answers of schedulers. Asks nothing itself."""
