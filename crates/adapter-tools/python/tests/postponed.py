"""Handlers whose annotations are strings, for the tests of schemas and conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Optional, TypedDict

if TYPE_CHECKING:
    import pandas as pd
    from somewhere import Widget

try:
    from typing import NotRequired
except ImportError:  # Python 3.9 and 3.10
    try:
        from typing_extensions import NotRequired
    except ImportError:
        NotRequired = None


@dataclass
class Room:
    beds: int
    next_door: Room | None = None


if NotRequired is not None:

    class Booking(TypedDict):
        room: str
        nights: NotRequired[int]

else:

    class _Required(TypedDict):
        room: str

    class Booking(_Required, total=False):
        nights: int


def book(rooms: List[Room], guests: int | None = None) -> Booking: ...


def local_handler():
    @dataclass
    class Local:
        x: int

    def handler(local: Local):
        return Local

    return handler


def lost(known: int, unknown: NoSuchType): ...  # noqa: F821


def for_checkers_only(
    frames: Dict[str, pd.DataFrame], named: List[Widget], maybe: pd.Series | None = None, room: Optional[Room] = ...
) -> Widget: ...
