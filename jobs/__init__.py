"""The worker side: processes that train runs. Of `orchestrator` it imports types, rundir, errors and trainers only."""
