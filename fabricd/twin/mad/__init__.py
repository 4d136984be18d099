"""The in-band face: subnet management, performance management and congestion control datagrams over ibsim's sockets."""
