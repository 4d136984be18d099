"""MQTT client, embedded broker, on-disk spool. It never looks inside frames."""
