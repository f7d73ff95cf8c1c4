"""Read offline logs of Weights & Biases and upload them."""
