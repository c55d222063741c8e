"""Which server holds a name? A table of slots, that a redirect corrects and a thread renews behind the requests.

The same for a cluster, whose masters hold some slots each, and for sentinels, whose master holds all.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable

from redis import exceptions
from redis.crc import key_slot

from ratelimit_app.connections.failures import FAILURES, Redirected, Unavailable
from ratelimit_app.connections.finding import SLOTS, Address, Found
from ratelimit_app.connections.server import Server

logger = logging.getLogger("ratelimit_app")

#: A doubt so soon after a look starts no other.
_PAUSE_SECONDS = 0.2
#: Behind the requests there is time to wait for a busy node.
_PATIENT_SECONDS = 0.5
#: After a first look in vain, requests fail at once for so long.
_GIVEN_UP_SECONDS = 0.1

#: Nodes that are not asked, and why, by name; kept by the breaker.
shunned: dict[str, str] = {}

#: Asks those servers, in this order, who holds what, with a timeout other than the configured one, if any.
Find = Callable[[Iterable[Server], float | None], Found]


class Shards:
    """The servers that hold the names between them, as one process knows them."""

    def __init__(
        self, find: Find, make: Callable[[Address], Server], *, seeds: tuple[Address, ...] = (), is_cluster: bool
    ) -> None:
        self.pid = os.getpid()
        self.is_cluster = is_cluster
        self._find, self._make, self._seeds = find, make, seeds
        self._table: list[Server | None] = []
        self._servers: dict[Address, Server] = {}
        self._others: tuple[Address, ...] = ()
        self._looking = threading.Lock()
        self._is_doubting = False
        self._looked_at = self._gave_up_at = float("-inf")

    @property
    def is_known(self) -> bool:
        """Whether the table was read; until then the first who asks for a server waits for it."""
        return bool(self._table)

    def server_for(self, key: bytes | None) -> Server:
        """The server that holds a name; any, for None. Raises Unavailable, and what `FAILURES` lists."""
        if not self._table:
            self.look_first()
        table = self._table
        server = self._any(table) if key is None else table[key_slot(key)]
        if server is None:
            self.doubt()
            raise Unavailable("uncovered", "no node holds these buckets")
        return server

    def look_first(self) -> None:
        """Read the table if nobody has yet, within the timeouts of a request. Raises what `FAILURES` lists."""
        with self._looking:
            if self._table:
                return
            if time.monotonic() - self._gave_up_at < _GIVEN_UP_SECONDS:
                raise exceptions.ClusterDownError("nobody could tell who holds what, a moment ago")
            try:
                self._look(None)
            except FAILURES:
                self._gave_up_at = time.monotonic()
                raise

    def look(self) -> None:
        """Read the table anew; not for requests. Raises what `FAILURES` lists, and what was known stays."""
        with self._looking:
            self._look(_PATIENT_SECONDS)

    def doubt(self) -> None:
        """Have a thread read the table anew, soon."""
        if self._is_doubting or time.monotonic() - self._looked_at < _PAUSE_SECONDS:
            return
        self._is_doubting = True
        try:
            threading.Thread(target=self._look_behind, name="ratelimit_app.shards", daemon=True).start()
        except RuntimeError:  # no thread to be had; the next doubt tries again
            self._is_doubting = False

    def redirected(self, redirect: Redirected, server: Server) -> Server:
        """The server that another one, which does not hold a name, points to."""
        address = (redirect.host or server.address[0], redirect.port)
        target = self._servers.get(address) or self._servers.setdefault(address, self._make(address))
        if not redirect.is_ask and self._table:
            self._table[redirect.slot] = target
            self.doubt()
        return target

    def tag_on(self, node: str) -> bytes | None:
        """A hash tag whose names live on this node; None when it holds no slot any more."""
        table = self._table
        if not any(server is not None and server.name == node for server in table):
            return None
        tags = (b"%d" % number for number in range(100 * SLOTS))
        return next((tag for tag in tags if (server := table[key_slot(tag)]) and server.name == node), None)

    def servers(self) -> list[Server]:
        """Those that hold any slot. Raises what `FAILURES` lists."""
        if not self._table:
            self.look_first()
        return list({server.name: server for server in self._table if server is not None}.values())

    def close(self) -> None:
        for server in list(self._servers.values()):
            server.close()

    def _any(self, table: list[Server | None]) -> Server | None:
        some = random.sample(table, 50)
        return next((server for server in some if server and server.name not in shunned), some[0])

    def _look_behind(self) -> None:
        try:
            self.look()
        except FAILURES as failure:
            logger.info("Nobody can tell which server holds which buckets: %s", str(failure))
        finally:
            self._looked_at = time.monotonic()
            self._is_doubting = False

    def _look(self, timeout_seconds: float | None) -> None:
        found = self._find(self._who_can_tell(), timeout_seconds)
        table: list[Server | None] = [None] * SLOTS
        servers: dict[Address, Server] = {}
        for first, last, address in found.spans:
            server = servers.get(address) or self._servers.get(address) or self._make(address)
            servers[address] = server
            table[first : last + 1] = [server] * (last + 1 - first)
        gone = [server for address, server in self._servers.items() if address not in servers]
        self._table, self._servers, self._others = table, servers, found.others
        for server in gone:
            server.close()

    def _who_can_tell(self) -> Iterable[Server]:
        known = list(self._servers.values())
        random.shuffle(known)
        known.sort(key=lambda server: server.name in shunned)
        trusted = [server.address for server in known if server.name not in shunned]
        addresses = dict.fromkeys((*trusted, *self._seeds, *self._others, *(server.address for server in known)))
        return (self._servers.get(address) or self._make(address) for address in addresses)
