"""Who runs where, and how its steps go."""
