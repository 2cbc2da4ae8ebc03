"""The microkernel: tasks, channels, messages and the planner. Knows no plugin by name.

Where to start reading: `messages` and `plans` (what is said), `contracts` (what plugins promise),
`kernel` (who is wired to whom), `planning.planner` with `rows`, `joining` and `room` (what a step
is made of), `scheduling` and `execution` (the two tasks that run it), `gateway` and
`streams.generation` (how tokens become a client's text). `admission` asks `overload` whether there
is room for more; `calls` is a client's request on its way there; `links` are what lies between a
gateway and its worker; `accounting` writes down what everybody has cost. `metrics`, `traces` and
`live` are what a scraper, whoever waits and whoever watches is told.
"""
