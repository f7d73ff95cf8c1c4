"""The trainer `ppo`: proximal policy optimization on many environments at once."""
