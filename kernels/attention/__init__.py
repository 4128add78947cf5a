"""Kernels of an attention decoder: the attentions of a step, rules on logits, alignment of text."""
