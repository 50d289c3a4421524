"""An environment class with its parameters, checked: programs, layouts, memory."""
