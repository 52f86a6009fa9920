"""Protobuf messages that nobody would send: of random content, and with their bytes changed. All from a seeded generator."""

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_EDGES = (0, 1, 2, 3, 7, 31, 32, 127, 128, 1000, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
_FLOATS = (0.0, -0.0, 0.5, 1.0, 2.0, -1.0, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = ("", "a", "user", "system", "standard", "batch", "tiny", "삼🙂", "\x00", "\n", "{{ x }}", "Bearer", "x" * 2000)
_BITS = {
    FieldDescriptor.TYPE_UINT32: (0, 32), FieldDescriptor.TYPE_UINT64: (0, 64),
    FieldDescriptor.TYPE_INT32: (-1, 31), FieldDescriptor.TYPE_INT64: (-1, 63),
    FieldDescriptor.TYPE_SINT32: (-1, 31), FieldDescriptor.TYPE_SINT64: (-1, 63),
}  # fmt: skip  # whether there are numbers below 0, and how many bits those above it have


def random_message(rng: random.Random, message: Message, depth: int = 4) -> Message:
    """The message with some of its fields set, each to something at the edge of what it may be."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.6 and not (field.message_type and depth == 0):
            _set(rng, message, field, depth)
    return message


def _set(rng: random.Random, message: Message, field: Any, depth: int) -> None:
    if field.is_repeated:
        count = rng.choice((0, 1, 1, 2, 3, 40))
        if _is_map(field.message_type):
            return
        if field.message_type is not None:
            for _ in range(count):
                random_message(rng, getattr(message, field.name).add(), depth - 1)
        else:
            getattr(message, field.name).extend(_value(rng, field) for _ in range(count))
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        random_message(rng, inner, depth - 1)
    else:
        setattr(message, field.name, _value(rng, field))


def _is_map(kind: Descriptor | None) -> bool:
    return kind is not None and kind.GetOptions().map_entry


def _value(rng: random.Random, field: FieldDescriptor) -> Any:
    if field.type in _BITS:
        low, bits = _BITS[field.type]
        value = rng.choice((rng.randrange(40), rng.choice(_EDGES))) % 2**bits
        return -value if low and rng.random() < 0.3 else value
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_STRING:
            return rng.choice(_TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.randrange(20))
        case FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            return rng.choice([*field.enum_type.values_by_number, 99])
    return rng.choice(_FLOATS)


def mutated(rng: random.Random, message: bytes) -> bytes:
    """The bytes with a few of them changed, cut, doubled or put in."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0 if place < len(data):
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randint(1, 8)]
            case 2:
                data[place:place] = data[place : place + rng.randint(1, 8)]
            case _:
                data[place:place] = rng.randbytes(rng.randint(1, 8))
    return bytes(data)


def perturbed(rng: random.Random, message: Message) -> Message:
    """A copy with one of its fields, or of a message in it, set to something at the edge of what it may be."""
    copy = type(message)()
    copy.CopyFrom(message)
    target: Message = copy
    while (inner := _inner(target)) and rng.random() < 0.6:
        target = rng.choice(inner)
    if target.DESCRIPTOR.fields:
        _set(rng, target, rng.choice(target.DESCRIPTOR.fields), 2)
    return copy


def _inner(message: Message) -> list[Message]:
    """The messages that it has, those of its lists too."""
    inner: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is not None and not _is_map(field.message_type):
            inner += value if field.is_repeated else [value]
    return inner


def messages(rng: random.Random, good: Message, count: int) -> list[bytes]:
    """A third each: random, as a good one but for a field, and as that but for some bytes."""
    made = [random_message(rng, type(good)()) if number % 3 == 0 else perturbed(rng, good) for number in range(count)]
    return [
        mutated(rng, each.SerializeToString()) if number % 3 == 1 else each.SerializeToString()
        for number, each in enumerate(made)
    ]
