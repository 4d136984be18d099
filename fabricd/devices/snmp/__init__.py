"""Switches by SNMP: profiles of devices, targets, and one engine a process."""
