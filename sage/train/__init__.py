"""Training: supervised fine-tuning makes the base model, reinforcement learning makes the policies."""
