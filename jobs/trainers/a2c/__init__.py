"""The trainer `a2c`: advantage actor-critic, one update per rollout."""
