"""The environments of actor-critic trainers: families by name, their keys, and the classes that play them."""
