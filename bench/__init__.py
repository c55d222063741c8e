"""What does it cost? Measurements, beside other limiters and beside the bare round trip; never run by the tests.

    python -m bench              all down to `pages`, one after the other, each in a process of its own; then `page`
    python -m bench.decisions    one decision: time, round trips, work of the server; refusals; threads; asyncio
    python -m bench.steps        where a decision spends its time, step by step
    python -m bench.fleet        40 gateways on one limit: is the bound held, and used?
    python -m bench.outage       how long answers take while Redis is gone
    python -m bench.hot_key      does a caller who floods slow the others down?
    python -m bench.views        whole requests over HTTP, under gunicorn and uvicorn
    python -m bench.memory       bytes of Redis per bucket
    python -m bench.exactness    admitted over the bound, with clocks that are wrong
    python -m bench.growth       more buckets, more limits, more gateways, more keys; the pipeline
    python -m bench.pages        the pages in the admin, over 5,000,000 rows
    python -m bench.leases       what leases save, and what they cost
    python -m bench.page         bench/results.json as the tables of docs/performance.md
    python -m bench.regression   `make bench-check`: did a decision become dearer? Ratios, in a minute

Behind them: `alone` (a section's options, its server, its output), `place` (servers, settings, callers), `ours` and
`rivals` (who is asked), `rounds` (timing), `gateways` (many processes), `results` (what is written down), `bars` (which
promises that keeps); `concurrent_decisions` is a part of `decisions`, `pipeline` of `growth`,
`page_times` and `crowd` of `pages`.
"""
