"""OpenSM as a control plane: its files, its signals and console, its log, and the tables it programs."""
