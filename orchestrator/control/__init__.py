"""Submit, poll, follow, cancel and retry sweeps, on one target or on several."""
