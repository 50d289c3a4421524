"""Grid games of a family: doors, keys and an agent that sees what is in front of it.

`cells` has the vocabulary, `view` what the agent sees, `moves` what an action does, `levels` what
builds a level, `scene` the picture. A game is a file with its levels and its reward.
"""
