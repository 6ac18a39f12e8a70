"""The policy: making and loading models and tokenizers, and log-probs and entropies of completions."""
