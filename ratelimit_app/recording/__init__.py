"""How does usage become rows, and what becomes of the rows?

batches       a batch becomes rows, exactly once
roll_up       minutes become hours, hours become days
purge         what is old is deleted
statements    rows added up by the database itself
"""

from ratelimit_app.recording.batches import record
from ratelimit_app.recording.purge import BATCH_DAYS, prune
from ratelimit_app.recording.rolling import roll_up

__all__ = ["BATCH_DAYS", "prune", "record", "roll_up"]
