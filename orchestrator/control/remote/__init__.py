"""A results tree behind ssh: code goes there, and commands of the pushed program run there.

:mod:`push_code` sends the code, :mod:`program` runs its commands; :mod:`delegate` assigns runs of a sweep,
:mod:`delegated` is what the tree there does with them.
"""
