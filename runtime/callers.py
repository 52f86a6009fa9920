"""Who may call and which classes there are, from the settings. Light: the preflight asks too."""

import re
from collections.abc import Iterable, Mapping, Sequence

from jetway.scheduler.classes import DEFAULT_CLASSES, ServiceClass

from .config import ServeConfig
from .errors import ConfigError
from .gateway.access import Access
from .gateway.auth import ApiKey, KeyRing
from .gateway.placement import Caller, Placer, PriorityDialect
from .named_config import KeyConfig
from .policy import FCFS, service_classes

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def make_access(config: ServeConfig) -> Access:
    """Raises ConfigError for a key that names a class that is not served or is another's twin, and ClassError."""
    classes = _classes(config)
    levels = {each.name: each.level for each in classes}
    deadlines_s = {each.name: each.default_deadline_s for each in classes if each.default_deadline_s is not None}
    keys = [_api_key(name, key, levels) for name, key in config.keys.items()]
    _check_distinct(keys)
    placer = Placer(levels, PriorityDialect(config.gateway.priority_dialect), deadlines_s=deadlines_s)
    return Access(KeyRing(keys), placer)


def _classes(config: ServeConfig) -> Sequence[ServiceClass]:
    """Those that a request may name; to fcfs they are all one."""
    policy = config.scheduler.policy
    return DEFAULT_CLASSES if policy == FCFS else service_classes(policy, config.classes)


def _check_distinct(keys: Iterable[ApiKey]) -> None:
    """Raise ConfigError where two keys have one secret: whose a call is would be the order in the file."""
    names: dict[str, str] = {}
    for key in keys:
        first = names.setdefault(key.sha256.lower(), key.name)
        if first != key.name:
            raise ConfigError(f"keys {first} and {key.name} have the same sha256")


def _api_key(name: str, key: KeyConfig, levels: Mapping[str, int]) -> ApiKey:
    if not _SHA256.fullmatch(key.sha256):  # not shown: it may be the key itself
        raise ConfigError(f"sha256 of key {name} must be 64 hexadecimal digits, not {len(key.sha256)} characters")
    allowed = tuple(levels) if key.classes is None else key.classes
    for word in (*allowed, key.default_class):
        if word not in levels:
            raise ConfigError(f"key {name} names class {word!r}, which is not served; classes are {', '.join(levels)}")
    if key.default_class not in allowed:
        raise ConfigError(f"default_class of key {name} is {key.default_class}, its classes are {', '.join(allowed)}")
    caller = Caller(
        tenant=name if key.tenant is None else key.tenant,
        default_class=key.default_class,
        allowed_classes=None if key.classes is None else frozenset(allowed),
        is_admin=key.admin,
    )
    return ApiKey(name, key.sha256, caller)
