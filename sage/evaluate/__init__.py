"""Evaluation: sampling every problem n times, grading what was kept, and pass@k."""
