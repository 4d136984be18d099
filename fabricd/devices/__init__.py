"""One client per outside system: UFM, SNMP, OpenSM. They decide nothing."""
