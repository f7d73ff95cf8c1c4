"""A results tree behind ssh: code goes there, questions are answered there by this program itself.

:mod:`push_code` sends code; :mod:`server` is what runs there, :mod:`client` how it is asked from here.
"""

# The exit code of an answer that says: the code that was sent is not what its name says, send it again.
CODE_DAMAGED = 98
