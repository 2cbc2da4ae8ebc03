"""The microkernel: tasks, channels, messages and the planner. Knows no plugin by name.

Where to start reading: `messages` (what is said), `contracts` (what plugins promise), `kernel`
(who is wired to whom), `planner` with `rows`, `joining` and `room` (what a step is made of),
`scheduling` and `execution` (the two tasks that run it), `gateway` and `generation` (how tokens
become a client's text).
"""
