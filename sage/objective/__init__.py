"""Pure tensor functions of the objective: guides, divergences, advantages, reducers, losses. No model, no I/O.

Token-level tensors are [B, C]: B completions of one micro-batch, padded to C tokens, with a boolean mask [B, C].
Everything is float32 or float64; masks are applied before any exponential.
"""
