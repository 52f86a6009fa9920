"""Settings that are each right by itself, and together are not."""

from typing import TYPE_CHECKING

from jetway.scheduler.classes import STANDARD

from .fields import Contradiction

if TYPE_CHECKING:
    from .config import ServeConfig


def check_sections(config: "ServeConfig") -> None:
    """Raises Contradiction, which names the settings."""
    _check_host_pool(config)
    _check_classes(config)
    gateway = config.gateway
    if not (gateway.is_loopback or config.keys or gateway.tls_client_ca or gateway.insecure):
        raise Contradiction(
            f"host {gateway.host} lets other machines in, and nothing says who may call: give keys or tls_client_ca, "
            "or say insecure",
            "host",
        )


def _check_host_pool(config: "ServeConfig") -> None:
    if config.executor.host_cache_memory:
        return
    if config.scheduler.preemption_mode == "swap":
        message = "preemption_mode is swap, and host_cache_memory is 0: there is nowhere to swap to"
        raise Contradiction(message, "preemption_mode", "host_cache_memory")
    if config.scheduler.write_through:
        message = "write_through is on, and host_cache_memory is 0: there is nowhere to write to"
        raise Contradiction(message, "write_through", "host_cache_memory")


def _check_classes(config: "ServeConfig") -> None:
    if not config.classes:
        return
    names = ", ".join(config.classes)
    if config.scheduler.policy is not None:
        message = f"policy is {config.scheduler.policy}, and classes hold {names}: give one of the two"
        raise Contradiction(message, "policy", "classes")
    if config.scheduler.aged_slots == 0 and any(each.max_wait_s is not None for each in config.classes.values()):
        message = "aged_slots is 0, and a class has max_wait_s: there is no lane to enter then"
        raise Contradiction(message, "aged_slots", "classes")
    if STANDARD not in config.classes:
        message = f"classes must hold {STANDARD}, for requests that name no class; they hold {names}"
        raise Contradiction(message, "classes")
