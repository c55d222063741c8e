"""From which address does a request come? The peer's, or what a trusted proxy says of it.

`X-Forwarded-For` is read only when the peer is a trusted proxy, and then only the entry that the
outermost of our own proxies wrote. Anything malformed falls back to the peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from ratelimit_app import conf

_NAT64 = IPv6Network("64:ff9b::/96")


def client_address(meta: Mapping[str, Any], *, ipv6_prefix: int | None = None) -> str:
    """What requests from this client are counted by; "" when it has no address.

    An IPv4 address, or an IPv6 network such as "2001:db8::/64", of `IPV6_PREFIX` unless told
    otherwise. `meta` is `request.META`.
    """
    settings = conf.current()
    forwarded = str(meta.get("HTTP_X_FORWARDED_FOR", "")) if settings.proxy_count else ""
    return _resolved(
        str(meta.get("REMOTE_ADDR") or ""),
        forwarded,
        settings.trusted_proxies,
        settings.proxy_count,
        ipv6_prefix or settings.ipv6_prefix,
    )


@lru_cache(maxsize=10_000)
def _resolved(peer_text: str, forwarded: str, trusted: tuple[str, ...], proxy_count: int, ipv6_prefix: int) -> str:
    address = _parsed(peer_text)
    if forwarded and _is_trusted(address, trusted):
        hops = forwarded.split(",")
        # Fewer entries than we have proxies: the request did not come through all of them.
        if len(hops) >= proxy_count:
            address = _parsed(hops[-proxy_count]) or address
    if address is None:
        return ""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, ipv6_prefix), strict=False))
    return str(address)


def _is_trusted(peer: IPv4Address | IPv6Address | None, trusted: tuple[str, ...]) -> bool:
    if peer is None:
        return "unix" in trusted
    return any(peer in ip_network(network, strict=False) for network in trusted if network != "unix")


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """An address without port, brackets and zone, IPv4 taken out of the IPv6 that wraps it; None for junk."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_network(text: str) -> bool:
    """Whether a text is an address or a network, as settings list them."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True
