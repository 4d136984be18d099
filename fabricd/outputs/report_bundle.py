"""One bundle for a vendor ticket: the counters around a verdict, topology, routes, what was done; anonymised."""
