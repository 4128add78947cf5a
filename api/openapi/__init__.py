"""What the OpenAPI document says of each route: summaries, answers, examples."""
