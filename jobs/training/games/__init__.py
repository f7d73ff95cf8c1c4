"""Games as batches of tensors, for the trainers. They import nothing of this project."""
