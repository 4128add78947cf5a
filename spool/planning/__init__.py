"""What a fleet will need for an amount of audio: time, money, energy, and the bottleneck. Pure arithmetic.

Knows models by their sizes and chips by their data sheets; knows no MLX, no database and no server.
"""
