"""Kernels of an attention decoder: its two attentions a step, the rules on its logits, and the alignment of its text."""
