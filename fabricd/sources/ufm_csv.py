"""UFM telemetry as CSV: rows of ports, columns named as the release names them."""
