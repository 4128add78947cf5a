"""Training of the demo model, in plain PyTorch: the one place of the repository that knows PyTorch.

Nothing in spool, worker, api or kernels imports from here.
"""
