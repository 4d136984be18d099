"""The checks, in the order they are reported. Each file holds the checks of one subject."""

from fabricd.doctor.checks import environment, link, path, pcie, port, registration, roce
from fabricd.doctor.report import Check

ALL_CHECKS: tuple[Check, ...] = (
    *registration.CHECKS,
    *path.CHECKS,
    *pcie.CHECKS,
    *link.CHECKS,
    *port.CHECKS,
    *roce.CHECKS,
    *environment.CHECKS,
)
