"""Addresses that several gateway processes share, held by their parent."""

import socket
from contextlib import ExitStack
from typing import Any

import attrs

from plancha.contracts import LoadError
from plancha_app.assembly import make, make_site
from plancha_app.deployment import Deployment


def hold_ports(deployment: Deployment, held: ExitStack) -> Deployment:
    """The deployment with every port 0 replaced by a free one.

    As long as `held` is open nobody else gets the ports, and gateways can listen there by
    SO_REUSEPORT. Raises `LoadError` when one is taken, or a transport cannot share it.
    """
    site = make_site(deployment, model=deployment.model.name, vocabulary=0, shared_ports=True)
    transports = dict(deployment.transport)
    for name, table in deployment.transport.items():
        address = getattr(make(f"transport.{name}", table, site), "listens_at", None)
        if address is None:
            raise LoadError(
                f'transport.{name}: plugin "{table.plugin}" cannot share its address between '
                "several processes; set gateways = 0 in [server]"
            )
        host, wanted = address
        port = _hold(host, wanted, held)
        transports[name] = attrs.evolve(table, options={**table.options, "port": port})
    return attrs.evolve(deployment, transport=transports)


def _hold(host: str, port: int, held: ExitStack) -> int:
    """Bind every address of the host, at one port. Bound and not listening, it gets no client."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            if port:  # SO_REUSEPORT alone would join whoever of the same user has it already
                with socket.socket(family, kind, protocol) as lone:
                    _bind(lone, socket.SO_REUSEADDR, address, port)
            holder = held.enter_context(socket.socket(family, kind, protocol))
            _bind(holder, socket.SO_REUSEPORT, address, port)
            port = holder.getsockname()[1]
    except OSError as error:
        raise LoadError(
            f"Cannot listen on host {host!r}, port {port}: {error.strerror}. "
            "Choose another port or host, or stop what uses it."
        ) from error
    return port


def _bind(to_bind: socket.socket, sharing: int, address: tuple[Any, ...], port: int) -> None:
    """As asyncio's servers do it: an IPv6 address is no IPv4 one as well."""
    to_bind.setsockopt(socket.SOL_SOCKET, sharing, 1)
    if to_bind.family == socket.AF_INET6:
        to_bind.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    to_bind.bind((address[0], port, *address[2:]))
