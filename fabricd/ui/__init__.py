"""Web page and terminal view. Holds no secrets."""
