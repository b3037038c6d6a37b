"""Files that a listing passed over: counted by extension, with a few names, so that a user sees what was not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from curation.sources.names import extension_label

MAX_EXAMPLES = 3
_SHOWN_KINDS = 6


@dataclass(slots=True)
class Unused:
    """What was passed over.

    Attributes:
        counts: extension, or a word in brackets such as '(hidden)' -> number.
        examples: names of the first ones, at most `MAX_EXAMPLES`.
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, name: str, shown: str | None = None) -> None:
        """Count a file.

        Args:
            shown: the name as an example, if it is another.
        """
        self.counts[extension_label(name)] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(shown or name)

    def merge(self, counts: Mapping[str, int], examples: Sequence[str]) -> None:
        """Add what another listing passed over."""
        self.counts.update(counts)
        self.examples += examples[: MAX_EXAMPLES - len(self.examples)]


def unused_message(counts: Mapping[str, int], examples: Sequence[str]) -> str | None:
    """One line for the user; None when every file was used."""
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kinds = [f"{number:,} {label}" for label, number in ordered[:_SHOWN_KINDS]]
    if len(ordered) > _SHOWN_KINDS:
        kinds.append(f"{sum(number for _, number in ordered[_SHOWN_KINDS:]):,} others")
    total = sum(counts.values())
    text = f"{total:,} {'file' if total == 1 else 'files'} beside the images not used: {', '.join(kinds)}"
    return f"{text}; such as {', '.join(examples)}" if examples else text
