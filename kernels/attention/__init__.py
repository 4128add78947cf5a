"""Kernels of an attention decoder: the attentions of a step, rules on logits, alignment of text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
