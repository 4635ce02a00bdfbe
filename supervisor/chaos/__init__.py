"""Chaos: a user's own tree is struck at boundary after boundary, and its promises are checked.

Nothing in here runs in a supervisor; it starts supervisors, and kills them.
"""
