"""Speech models in MLX: their faces, their families, and the parts that families share."""
