"""Settings of all tests."""

from hypothesis import settings

# No limit per example: machines are busy, and a slow one proves nothing.
settings.register_profile("fabricd", deadline=None)
settings.load_profile("fabricd")
