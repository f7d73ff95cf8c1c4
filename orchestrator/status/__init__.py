"""One state per run, from the ledger, the journals and schedulers' answers. Queries nothing itself."""
