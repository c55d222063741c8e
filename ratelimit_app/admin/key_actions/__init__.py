"""What can be done to a key, beside editing it? Each is a form with a permission of its own, and leaves a trace."""

from ratelimit_app.admin.key_actions.action import Done, KeyAction, NotDone
from ratelimit_app.admin.key_actions.life import Revoke, Rotate
from ratelimit_app.admin.key_actions.quota import Boost, EndBoost, Move, Reset

#: In the order of the buttons.
ACTIONS: tuple[type[KeyAction], ...] = (Rotate, Boost, EndBoost, Move, Reset, Revoke)

__all__ = ["ACTIONS", "Boost", "Done", "EndBoost", "KeyAction", "Move", "NotDone", "Reset", "Revoke", "Rotate"]
