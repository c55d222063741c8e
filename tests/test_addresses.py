"""Is a client counted by the address it really has? The known attacks, as tables."""

from __future__ import annotations

import random

import pytest

from ratelimit_app.addresses import client_address

PROXY = "10.0.0.1"
CLIENT = "203.0.113.9"


def address(peer: str | None = CLIENT, forwarded: str | None = None) -> str:
    meta = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": forwarded}
    return client_address({name: value for name, value in meta.items() if value is not None})


def random_address() -> str:
    return ".".join(str(random.randrange(1, 255)) for _ in range(4))


# --- 1: a forged X-Forwarded-For ---------------------------------------------------------------------


def test_without_trusted_proxies_a_forged_header_is_not_read():
    assert {address(CLIENT, random_address()) for _ in range(100)} == {CLIENT}


def test_a_forged_header_from_a_peer_that_is_no_proxy_is_not_read(configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert {address(CLIENT, random_address()) for _ in range(100)} == {CLIENT}


@pytest.mark.parametrize(("count", "ours"), [(1, [CLIENT]), (2, [CLIENT, "10.0.0.2"])])
def test_only_what_our_outermost_proxy_wrote_is_believed(count, ours, configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=count)
    forged = [", ".join([*(random_address() for _ in range(random.randrange(5))), *ours]) for _ in range(100)]
    assert {address(PROXY, header) for header in forged} == {CLIENT}


def test_a_request_that_did_not_pass_all_proxies_is_counted_by_its_peer(configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=2)
    assert address(PROXY, CLIENT) == PROXY


@pytest.mark.parametrize(
    "header", ["x", "", " ", ",", "unknown", "_hidden", "1.2.3", "203.0.113.9;", "\0", "999.1.1.1"]
)
def test_a_malformed_entry_falls_back_to_the_peer(header, configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address(PROXY, header) == PROXY


def test_a_unix_socket_is_trusted_only_when_it_is_named(configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address("", CLIENT) == ""
    configure(TRUSTED_PROXIES=["unix"], PROXY_COUNT=1)
    assert address("", CLIENT) == CLIENT
    assert address(PROXY, CLIENT) == PROXY


# --- 2: everybody behind the proxy in one bucket -----------------------------------------------------


def test_two_clients_behind_a_trusted_proxy_are_two(configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address(PROXY, "203.0.113.1") != address(PROXY, "203.0.113.2")


# --- 3: walking through an IPv6 network --------------------------------------------------------------


def test_a_hundred_addresses_of_one_network_are_one_caller_and_the_next_network_another():
    assert {address(f"2001:db8:1:2::{number:x}") for number in range(100)} == {"2001:db8:1:2::/64"}
    assert address("2001:db8:1:3::1") == "2001:db8:1:3::/64"


@pytest.mark.parametrize(("length", "counted"), [(56, "2001:db8:1:200::/56"), (128, "2001:db8:1:2ff::1/128")])
def test_the_length_of_the_network_is_a_setting(length, counted, configure):
    configure(IPV6_PREFIX=length)
    assert address("2001:db8:1:2ff::1") == counted


# --- 4: IPv4 inside IPv6 -----------------------------------------------------------------------------


def test_mapped_addresses_are_unwrapped_before_they_are_cut():
    assert address("::ffff:1.2.3.4") == address("1.2.3.4") == "1.2.3.4"
    assert address("::ffff:5.6.7.8") == "5.6.7.8"


def test_a_mapped_proxy_is_the_proxy(configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address(f"::ffff:{PROXY}", CLIENT) == CLIENT


# --- 5: other ways to write an address ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ("203.0.113.9:4711", CLIENT),
        (" 203.0.113.9 ", CLIENT),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("64:ff9b::203.0.113.9", CLIENT),
        ("01.2.3.4", PROXY),
        ("127.1", PROXY),
        ("0x7f.0.0.1", PROXY),
        ("2130706433", PROXY),
        ("[203.0.113.9", CLIENT),
        ("::", "::/64"),
    ],
)
def test_other_spellings_are_read_or_fall_back_to_the_peer(written, counted, configure):
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address(PROXY, written) == counted


@pytest.mark.parametrize("peer", [None, "", "b''", "not an address", "\ud800"])
def test_a_peer_without_an_address_has_none(peer):
    assert address(peer) == ""


def test_a_changed_setting_counts_at_once(configure):
    assert address(PROXY, CLIENT) == PROXY
    configure(TRUSTED_PROXIES=["10.0.0.0/8"], PROXY_COUNT=1)
    assert address(PROXY, CLIENT) == CLIENT
