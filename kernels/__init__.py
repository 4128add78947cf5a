"""Operations of the search on the device, each beside its plain-MLX reference. Imports nothing of ours."""
