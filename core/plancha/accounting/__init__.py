"""What every accepted request costs, and how that gets into the ledger. Start at `accounts`."""
