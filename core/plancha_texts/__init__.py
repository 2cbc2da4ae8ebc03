"""What is kept of prompts and outputs, by each tenant's own setting. Start at `keeper`."""
