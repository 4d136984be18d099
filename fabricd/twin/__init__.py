"""The flow model behind real interfaces. Imported only by the command line and tests."""
