"""What the mathematical tasks share: the prompt, the answer region, and the written policy of what counts as equal."""
