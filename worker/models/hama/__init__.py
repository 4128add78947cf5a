"""The phoneme recogniser of the package hama: a Conformer below CTC over IPA symbols.

Source: https://github.com/hamanlp/hama, version 1.7.0. Spool reads the package's weights and runs none of its
code.
"""
