"""The oracle: a tree whose every trajectory is listed, so that each objective and its fixed point are exact."""
