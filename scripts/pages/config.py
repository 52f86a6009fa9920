"""docs/config.md, from the settings."""

from collections.abc import Iterable
from dataclasses import fields

from jetway.runtime.policy import FCFS, POLICIES
from jetway.runtime.settings import MAP_SETTINGS, SECTIONS, SETTINGS, Setting
from jetway.runtime.spellings import ALIASES, INSTEAD, OPPOSITES
from jetway.scheduler.classes import ServiceClass

INTRODUCTION = """\
<!-- Made by scripts/docs from runtime/config.py. -->
# Settings

Each key below is a flag of `jetway serve` (`max_num_seqs` is `--max-num-seqs`; what is true or false is a switch:
`--write-through`, `--no-write-through`), an environment variable (`JETWAY_MAX_NUM_SEQS`) and a key of the YAML file given
by `--config`, under its section. A flag wins over the environment, the environment over the file. `--print-config` prints
the result as such a file, with the origin of every value. `null` is "not set".
"""

CLASSES = """\
A map of names to the fields below, in the file only. It must hold `standard`, the class of requests that name none;
without the map, `policy` says which classes there are. Levels are strict; classes of one level share it by weight, and
tenants inside a class by theirs. What is shared is tokens served: a prompt token that had to be computed counts 1, a
generated token 2.
"""

LANE = """\
### The aged lane

Where better levels always have work, a worse one never runs, unless its class has `max_wait_s`: what has waited so long
may enter the aged lane. There it stands before every level and nobody displaces it, so the j-th request that is due
starts at most `max_wait_s` plus the lane's service of those before it after it came. Nothing is kept free for it; what
runs there costs better levels

* its slots, at most `aged_slots`: with `max_num_seqs` 1, the only one, for as long as it runs;
* its KV blocks. The first takes what it needs, others no more than the place of one sequence of a better level. A request
  that needs the whole pool stops everything else while it runs: let classes of such requests have no `max_wait_s`;
* one block of tokens of each step while it prefills, and what better levels leave of the budget.
"""

POLICY = """\
### Policies

`policy` is shorthand. `strict`, which is what nothing given means:

{strict}
`weighted`:

{weighted}
`fcfs`: one class, `standard`, in the order of arrival. Requests may name `interactive`, `standard` and `batch`, and a
priority, and keys may restrict them. As with the other policies, what is unknown, disagrees or is not the key's is
refused, and an answer's `service_tier` is that of the class asked for; the order does not change.
"""

TENANTS = "A map of names to the fields below, in the file only.\n"

KEYS = """\
A map of names to the fields below, in the file only. With any key here, /v1 and gRPC (health and reflection apart) answer
only calls that send one (`Authorization: Bearer KEY`), and the key alone says whom a call is counted to.
`jetway key NAME` makes one and prints its entry here; `printf %s "$KEY" | sha256sum` gives the hash of another.
"""


def page() -> str:
    parts = [INTRODUCTION]
    parts.append(_section("Top level", None, [each for each in SETTINGS.values() if each.section is None]))
    for name, section in SECTIONS.items():
        settings = [each for each in SETTINGS.values() if each.section == name]
        parts.append(_section(f"`{name}`", section.__doc__, settings))
    for name, introduction in (("classes", CLASSES), ("tenants", TENANTS), ("keys", KEYS)):
        parts.append(_section(f"`{name}`", introduction, MAP_SETTINGS[name].values()))
        if name == "classes":
            parts.append(LANE)
            parts.append(POLICY.format(**{name: _yaml(classes) for name, classes in POLICIES.items() if name != FCFS}))
    parts.append(_other_names())
    return "\n".join(parts)


def _section(title: str, introduction: str | None, settings: Iterable[Setting]) -> str:
    lines = [f"## {title}", "", *([introduction.strip(), ""] if introduction else [])]
    lines += ["| key | takes | default | |", "|---|---|---|---|"]
    for each in settings:
        default = "" if each.required else f"`{each.format(each.field.default)}`"
        lines.append(f"| `{each.name}` | {each.takes} | {default} | {each.help} |")
    return "\n".join(lines) + "\n"


def _yaml(classes: Iterable[ServiceClass]) -> str:
    """The fields of each class that are not the default."""
    lines = []
    for each in classes:
        own = {field.name: getattr(each, field.name) for field in fields(each) if field.name not in ("name", "level")}
        changed = {name: value for name, value in own.items() if value != getattr(ServiceClass(), name)}
        words = ", ".join(f"{name}: {value}" for name, value in {"level": each.level, **changed}.items())
        lines.append(f"      {each.name}: {{{words}}}\n")
    return "    classes:\n" + "".join(lines)


def _other_names() -> str:
    lines = ["## Other names", "", "Accepted for the setting beside it:", "", "| name | setting |", "|---|---|"]
    for alias, name in ALIASES.items():
        lines.append(f"| `{alias}` | {'the opposite of ' if alias in OPPOSITES else ''}`{name}` |")
    lines += ["", "Refused, with this advice:", "", "| name | advice |", "|---|---|"]
    lines += [f"| `{name}` | {advice} |" for name, advice in INSTEAD.items()]
    return "\n".join(lines) + "\n"
