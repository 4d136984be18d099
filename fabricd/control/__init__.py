"""Policy, guard, journal, verification. Nothing acts without the journal."""
