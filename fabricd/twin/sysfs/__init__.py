"""The node's face: one directory per host that stands for its ``/sys``, and its interfaces' statistics as files."""
