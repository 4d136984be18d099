"""fabricd: fabric telemetry and congestion control for GPU clusters on InfiniBand and RoCE."""

__version__ = "0.1.0"
