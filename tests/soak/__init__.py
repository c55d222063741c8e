"""Does the whole thing hold for minutes? Real servers, real traffic, and a Redis that is killed again and again.

python -m tests.soak --seconds 60 --kills 10

site       what runs: two servers with the example project, a worker, a broker, a database, the limiter's Redis
callers    who sends requests, and what they were answered
checks     what has to hold afterwards
"""
