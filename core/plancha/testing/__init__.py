"""What plugin authors and tests need: scripted executors, a clock to turn, an embedded kernel."""
