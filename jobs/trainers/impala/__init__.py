"""The trainer `impala`: actor-critic learning from chunks of rollouts, corrected by V-trace."""
