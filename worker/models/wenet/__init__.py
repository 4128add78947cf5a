"""The WeNet family: U2 and U2++, one encoder below CTC, attention decoders, transducers (Wu et al. 2021)."""
