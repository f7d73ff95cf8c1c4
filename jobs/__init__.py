"""The worker side: processes that train runs. Of `orchestrator` it imports only light modules."""
