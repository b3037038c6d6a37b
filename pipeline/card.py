"""What the dataset card says of a configuration: the selection in force, and what a user of the corpus must know."""

from __future__ import annotations

from typing import Any

from pipeline.config import PopulaceConfig


def shown_selection(config: PopulaceConfig) -> dict[str, Any]:
    """The selection in force, as the card shows it: references by name and limits, without places."""
    shown: dict[str, Any] = config.shown()["select"]
    shown["references"] = {
        item.pop("name"): {key: item[key] for key in ("reason", "exact", "radius", "threshold")}
        for item in shown["references"]
    }
    shown["against"] = len(shown["against"]) or None
    return shown


def known_limits(config: PopulaceConfig) -> list[str]:
    """What a user of the corpus must know of how it was made."""
    near, semantic = config.select.near_duplicates, config.select.semantic_duplicates
    mirrored = "" if near is not None and near.mirrored else "mirrored, "
    limits = [
        f"Near duplicates are found by a 64-bit DCT hash: {mirrored}rotated and strongly cropped copies are not."
        if near is not None
        else "Near duplicates were not searched for by perceptual hash.",
        "Scores are estimates of models; thresholds were set by the configuration and are only as good as their "
        "calibration on this pool.",
    ]
    if semantic is not None:
        limits.append(
            f"Rows with embeddings of cosine {semantic.threshold} and more were dropped; the search is approximate in "
            "its recall, exact in what it drops, and blind to what the embedding does not see."
        )
    if not config.select.references:
        limits.append("The corpus was not compared with any evaluation set: it may contain pictures of test sets.")
    person = config.scorers.person
    if person is None:
        limits.append("No person detector was run: pictures without people were not dropped.")
    elif person.kind != "yolo":
        limits.append(
            f"Persons were found by their faces ({person.kind}): people seen from behind or with a hidden face were "
            "dropped as no_person, and the size of a person is an estimate from the face (column person_box_source)."
        )
    if config.scorers.nsfw is None:
        limits.append("No detector of unsafe content was run.")
    if config.policy.licence is None:
        limits.append("Licences were recorded as the source states them and not used to select.")
    return limits
