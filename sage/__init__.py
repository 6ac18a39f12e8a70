"""SAGE reproducibility project: every stage of the study, from puzzles to the report."""

__version__ = "0.1.0"
