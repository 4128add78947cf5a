"""The Conformer encoder: subsampling, relative-position attention, layers."""
