"""What every gRPC service of the gateway shares: who calls, and errors as statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import grpc

from jetway.runtime.errors import JetwayError, edge_of
from jetway.runtime.wire import error_to_proto

from .access import Access
from .placement import Caller
from .words import plain

ERROR_KEY = "jetway-error-bin"  # trailing metadata of a non-OK status: the jetway.v1.Error
AUTHORIZATION_KEY, TENANT_KEY = "authorization", "x-jetway-tenant"  # metadata of a call
Context = grpc.aio.ServicerContext[Any, Any]


def caller_of(context: Context, access: Access) -> Caller:
    """Raises Unauthenticated, and InvalidArgument for a tenant that is not plain."""
    given = {key: str(value) for key, value in context.invocation_metadata() or ()}
    tenant = given.get(TENANT_KEY)
    return access.keys.caller(given.get(AUTHORIZATION_KEY), plain(tenant, TENANT_KEY) if tenant else None)


def is_near(context: Context) -> bool:
    """Whether the peer is on this machine."""
    host = unquote(context.peer().partition(":")[2].rpartition(":")[0]).strip("[]")
    return ip_address(host).is_loopback


@asynccontextmanager
async def errors_as_status(context: Context) -> AsyncIterator[None]:
    """End the call with the status that `errors.EDGES` names, and the whole error in its trailing metadata."""
    try:
        yield
    except JetwayError as error:
        await abort(context, edge_of(error).grpc, error.message, error)


async def abort(context: Context, status: str, message: str, error: JetwayError) -> None:
    """End the call with the status of this name, and the whole error in its trailing metadata. A client that reads nothing is
    told once it reads, or goes without having been told.
    """
    details = error_to_proto(error).SerializeToString()
    with suppress(grpc.aio.InternalError):  # it has gone
        await context.abort(grpc.StatusCode[status], message, ((ERROR_KEY, details),))
