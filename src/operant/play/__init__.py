"""Games for people, in the terminal: any environment with a Discrete action space."""
