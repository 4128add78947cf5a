"""What telling speakers apart costs, beside what a core could do."""
