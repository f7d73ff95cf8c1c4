"""What the trainers `ppo`, `impala` and `a2c` share: environments, networks, rollouts, evaluation."""
