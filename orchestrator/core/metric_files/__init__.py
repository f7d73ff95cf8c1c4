"""Metrics in files of other loggers: TensorBoard, W&B, CSV, JSON lines, Stable-Baselines3's Monitor."""
