"""The worker: a parent process that starts one process per run and writes the journal."""
