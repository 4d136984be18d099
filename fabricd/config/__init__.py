"""One TOML file into typed structs."""
