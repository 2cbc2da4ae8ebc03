"""`python -m plancha_app`: the same as `plancha`."""

from plancha_app.cli import main

main()
