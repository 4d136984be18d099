"""MADs: transport, attribute layouts, windowed scheduler, typed Gets. Never a Set of a counter."""
