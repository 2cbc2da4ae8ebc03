"""Every step: who runs, who joins, who gives way, and whose memory it is. Start at `planner`."""
