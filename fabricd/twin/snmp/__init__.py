"""The switches' management face: net-snmp's snmpd speaks SNMP v2c and v3, a sub-agent here answers for the objects."""
