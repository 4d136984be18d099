"""A stand-in for UFM Enterprise's REST server and telemetry endpoint.

No UFM can be had for a simulation, so this one was written from public documents. Shapes, names and habits follow them;
where they are silent it refuses rather than guesses. It is strict about what it is sent.
"""
