"""Finds the container files (tars, Parquet files, lists) that a path names: a folder, a file, a glob or braces."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from curation.sources.base import SourceError, Unit
from curation.sources.filesystem import Entry, Files
from curation.sources.names import escape_name, extension_label
from curation.sources.redact import describe, redact_url
from curation.sources.storage import StorageConfig, absolute, is_local

log = logging.getLogger(__name__)

MAX_EXPANSION = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_WILD = re.compile(r"[*?\[]")


def expand_braces(pattern: str) -> Iterator[str]:
    """`{000..002}` and `{a,b}`, as the shell and WebDataset expand them; the width of the first number is kept."""
    match = _BRACES.search(pattern)
    if not match:
        yield pattern
        return
    numbers = _RANGE.fullmatch(match[1])
    if numbers:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        parts: Iterator[str] = (str(n).zfill(len(numbers[1])) for n in range(first, last + step, step))
    else:
        parts = iter(match[1].split(","))
    for part in parts:
        yield from expand_braces(pattern[: match.start()] + part + pattern[match.end() :])


class Containers:
    """The containers of one source. Picklable; looks at the path when it is first asked.

    The root, to which names are relative, is the folder itself, the file's folder, or the folder before the first
    wildcard or brace.

    Args:
        lake: a table's own files and folders (names that begin with `_`, such as `_delta_log`, but for partitions like
            `_year=2024`) are no containers, unless they are named.
    """

    def __init__(self, config: StorageConfig, suffixes: Sequence[str], noun: str, lake: bool = False) -> None:
        self.path = absolute(config.path)
        self.shown = redact_url(config.path)
        self.options = config.storage_options
        self.suffixes = tuple(suffixes)
        self.noun = noun
        self.lake = lake
        self.ignored: dict[str, int] = {}

    @cached_property
    def _found(self) -> tuple[Files, str | None, str | None]:
        """Files under the root; and the one name, or the pattern, when the path is not a folder."""
        whole = Files(self.path, self.options)
        kind = whole.kind()
        if kind == "directory":
            return whole, None, None
        head, _, base = self.path.rstrip("/").rpartition("/")
        if kind == "file":
            return Files(head or "/", self.options), escape_name(base), None
        special = re.search(r"[*?\[{]", self.path)
        if not special:
            raise SourceError(
                f"source.path: {self.shown} does not exist. Give a folder, one {self.noun}, a glob, or a range like "
                "shard-{000000..000099}" + self.suffixes[0] + "."
            )
        root = self.path[: special.start()].rpartition("/")[0]
        if is_local(self.path):
            root = root or "/"
        return Files(root, self.options), None, self.path[len(root) :].lstrip("/")

    @property
    def files(self) -> Files:
        """The files under the root, for reading."""
        return self._found[0]

    def units(self) -> list[Unit]:
        """One unit per container, sorted by name.

        Raises:
            SourceError: nothing there, or it cannot be listed.
        """
        try:
            entries = self._entries()
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"source.path: {self.shown} cannot be listed: {describe(error)}") from error
        if not entries:
            raise SourceError(
                f"source.path: {self.shown} holds no {self.noun} ({', '.join(self.suffixes)}). "
                f"Seen and ignored: {self.ignored or 'nothing'}."
            )
        return [Unit(entry.name, ((entry.name, entry.size),)) for entry in entries]

    def _entries(self) -> list[Entry]:
        files, name, pattern = self._found
        if name is not None:
            return [Entry(name, files.size(name))]
        if files.kind() != "directory":
            return []
        depth = None if pattern is None or "**" in pattern else pattern.count("/") + 1
        listing = files.walk(depth)
        ignored = listing.skipped
        entries = []
        delta = None
        spelled = pattern is not None and (pattern.startswith("_") or "/_" in pattern)
        for entry in listing.entries:
            if self.lake and not spelled and _of_table(entry.name):
                ignored["(underscore)"] += 1
                if entry.name.startswith("_delta_log/") or "/_delta_log/" in entry.name:
                    delta = entry.name
            elif pattern is None and (
                "_temporary" in entry.name.split("/") or not entry.name.lower().endswith(self.suffixes)
            ):
                ignored[extension_label(entry.name)] += 1
            else:
                entries.append(entry)
        self.ignored = dict(sorted(ignored.items()))
        if delta is not None:
            log.warning(
                "%s is a Delta table: every Parquet file in it is read, also those that %s says were removed. "
                "Vacuum the table first if that matters.",
                self.shown,
                delta.rpartition("/")[0],
            )
        return entries if pattern is None else self._matching(entries, pattern)

    def _matching(self, entries: Sequence[Entry], pattern: str) -> list[Entry]:
        """Files that the pattern names. A name that braces spell out is a container even when it does not exist:
        its absence is then accounted for."""
        by_name = {entry.name: entry for entry in entries}
        found: dict[str, Entry] = {}
        for number, part in enumerate(expand_braces(pattern)):
            if number >= MAX_EXPANSION:
                raise SourceError(f"source.path: {self.shown} expands to more than {MAX_EXPANSION} names.")
            escaped = escape_name(part)
            if escaped in by_name:
                found[escaped] = by_name[escaped]
            elif _WILD.search(part):
                matches = _glob_pattern(escaped)
                found.update((name, entry) for name, entry in by_name.items() if matches.fullmatch(name))
            else:
                found[escaped] = Entry(escaped, None)
        if not any(name in by_name for name in found):
            return []
        return [found[name] for name in sorted(found)]


def _of_table(name: str) -> bool:
    """True below a name that begins with `_` and is no partition."""
    return any(part.startswith("_") and "=" not in part for part in name.split("/"))


def _glob_pattern(pattern: str) -> re.Pattern[str]:
    """`*`, `?` and `[...]` stay within a path component, `**` as a whole component crosses any number of them."""
    parts = []
    for piece in re.findall(r"\*\*/|\*|\?|\[[^]]+\]|.", pattern, re.DOTALL):
        if piece == "**/":
            parts.append("(?:[^/]+/)*")
        elif piece in "*?":
            parts.append("[^/]*" if piece == "*" else "[^/]")
        elif len(piece) > 2:
            inner = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            parts.append("[" + ("^" + inner[1:] if inner[0] in "!^" else inner) + "]")
        else:
            parts.append(re.escape(piece))
    return re.compile("".join(parts), re.DOTALL)
