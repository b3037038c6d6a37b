"""Ids and categories of COCO files: which entries are people, and how many are of other categories.

Ids may be whole numbers, whole numbers written as 7.0, or text (a file's name): 7, 7.0 and "7" are one id.

People are chosen by name or number. Where nothing is chosen:

| the file | people |
|---|---|
| names a category `person` (any case) | that one |
| names others only | an error that lists them; in training data, the only one that has entries is taken |
| names none, and its entries have one number | all of them |
| names none, and its entries have several numbers | 1, which is COCO's person; an error where there is no 1, or \
a 0, which COCO does not have |

Entries without a category are always taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ALL = "all"
PERSON = "person"
COCO_PERSON = "1"
_SHOWN = 8


def identifier(value: Any) -> str | None:
    """An id of a JSON value, by which ids are compared; None: the value is no id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return str(value) or None


def category_names(listed: Any) -> dict[str, str]:
    """Id -> name, of the value of `categories`; what is no category in it is passed over."""
    entries = listed if isinstance(listed, list) else []
    found: dict[str, str] = {}
    for entry in entries:
        key = identifier(entry.get("id")) if isinstance(entry, Mapping) else None
        if key is not None and isinstance(entry.get("name"), str):
            found[key] = entry["name"]
    return found


def category_counts(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Id -> number of entries, in the order in which ids come first; those without a category are not counted."""
    counts: dict[str, int] = {}
    for entry in entries:
        key = identifier(entry.get("category_id"))
        if key is not None:
            counts[key] = counts.get(key, 0) + 1
    return counts


def described(names: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """For people: "1 person (12), 18 dog (3)", the most frequent first."""
    ids = sorted(counts, key=lambda key: -counts[key])
    shown = [f"{key}{f' {names[key]}' if key in names else ''} ({counts[key]:,})" for key in ids[:_SHOWN]]
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(shown) + more or "none"


def chosen_categories(
    names: Mapping[str, str], counts: Mapping[str, int], wanted: str | int | None, only_one: bool
) -> frozenset[str] | None:
    """Ids of the categories that are people; None: all entries are.

    Args:
        names: of `category_names`.
        counts: of `category_counts`.
        wanted: a name, a number or "all"; None: see the module.
        only_one: with nothing wanted, take the only category that has entries, whatever its name is.

    Raises:
        ValueError: there is no such category, or none can be told to be people; the message says what there is.
    """
    known = {**{key: key for key in counts}, **names}
    if wanted is not None:
        given = str(wanted).casefold()
        found = {key for key, name in known.items() if name.casefold() == given} or ({given} & known.keys())
        if found:
            return frozenset(found)
        if given == ALL:
            return None
        there = described(names, {**dict.fromkeys(names, 0), **counts})
        raise ValueError(f"there is no category {wanted!r}: the categories and their numbers of entries are {there}")
    people = {key for key, name in known.items() if name.casefold() == PERSON}
    if people:
        return frozenset(people)
    if len(counts) <= 1 and (only_one or not names):
        return frozenset(counts) or None
    if COCO_PERSON in counts and "0" not in counts and not names:
        return frozenset({COCO_PERSON})
    if not counts:
        return None
    raise ValueError(
        f"no category is named {PERSON}: the categories and their numbers of entries are {described(names, counts)}"
    )
