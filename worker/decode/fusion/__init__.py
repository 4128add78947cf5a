"""What shifts a search's scores beside the model: language models and phrases."""
