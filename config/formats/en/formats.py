"""Dates in the lists of the admin: short, by the day of 24 hours, as everywhere else."""

from __future__ import annotations

DATETIME_FORMAT = "j M Y H:i"
DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i"
