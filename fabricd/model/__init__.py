"""The vocabulary: pure data and codecs. No I/O, no numpy."""
