"""Families of tasks: templates that draw any number of fresh tasks from a seed. FAMILIES holds them by name."""

from task_families import edits, history, lines, records, tables, trail
from task_families.draft import FAMILIES, Draft, Draw, Family, Redraw, Split

__all__ = [
    "FAMILIES",
    "Draft",
    "Draw",
    "Family",
    "Redraw",
    "Split",
    "edits",
    "history",
    "lines",
    "records",
    "tables",
    "trail",
]
