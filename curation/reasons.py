"""The closed set of reasons why an input is not in the corpus.

Every dropped row of the ledger carries exactly one of these codes: the first that applied, in the order of
the stages. `DESCRIPTIONS` is what reports and dataset cards print.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A reason code. The value is what the ledger stores."""

    # Reading: the bytes could not be had.
    MISSING = "missing"
    READ_ERROR = "read_error"
    EMPTY = "empty"
    TOO_MANY_BYTES = "too_many_bytes"
    BAD_CONTAINER = "bad_container"
    TRUNCATED_CONTAINER = "truncated_container"
    UNSAFE_MEMBER = "unsafe_member"
    # Downloading: source.kind = urls.
    BAD_URL = "bad_url"
    ADDRESS_REFUSED = "address_refused"
    DOWNLOAD_FAILED = "download_failed"
    HTTP_ERROR = "http_error"
    OPTED_OUT = "opted_out"
    # Decoding: the bytes are there and are not a picture that we take.
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    TOO_MANY_PIXELS = "too_many_pixels"
    UNREADABLE = "unreadable"
    # Policy: a score is outside its limits.
    TOO_SMALL = "too_small"
    ASPECT_RATIO = "aspect_ratio"
    BLURRED = "blurred"
    TOO_DARK = "too_dark"
    TOO_BRIGHT = "too_bright"
    LOW_ENTROPY = "low_entropy"
    BLOCKED = "blocked"
    LICENCE = "licence"
    NO_PERSON = "no_person"
    PERSON_TOO_SMALL = "person_too_small"
    PERSON_SCORE = "person_score"
    HEAD_POSE = "head_pose"
    LOW_AESTHETIC = "low_aesthetic"
    NOT_PHOTO = "not_photo"
    TEXT_OVERLAY = "text_overlay"
    NSFW = "nsfw"
    # Selection: compared with references, with an earlier corpus, with other rows, and with the shares of all.
    CONTAMINATION = "contamination"
    IN_CORPUS = "in_corpus"
    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    SEMANTIC_DUPLICATE = "semantic_duplicate"
    OVER_REPRESENTED = "over_represented"
    # Faults of ours: kept apart so that they can be found and run again.
    SCORER_FAILED = "scorer_failed"
    WORKER_CRASHED = "worker_crashed"


DESCRIPTIONS: dict[Reason, str] = {
    Reason.MISSING: "the file, member or row is no longer in the source",
    Reason.READ_ERROR: "the source could not be read after retries",
    Reason.EMPTY: "zero bytes",
    Reason.TOO_MANY_BYTES: "more encoded bytes than the cap",
    Reason.BAD_CONTAINER: "the tar, table or list that should hold the image cannot be read, or lacks its column",
    Reason.TRUNCATED_CONTAINER: "the tar ends in the middle of a member",
    Reason.UNSAFE_MEMBER: "the tar member is a link or a device, not a file",
    Reason.BAD_URL: "not an http or https URL",
    Reason.ADDRESS_REFUSED: "the URL leads to a private, loopback or link-local address",
    Reason.DOWNLOAD_FAILED: "no HTTP response after retries (DNS, time-out, connection)",
    Reason.HTTP_ERROR: "the server answered with an error status",
    Reason.OPTED_OUT: "the publisher opted out (an HTTP header, a key of the metadata, or XMP in the image)",
    Reason.NOT_AN_IMAGE: "the bytes are not an image in any known format",
    Reason.UNSUPPORTED_FORMAT: "an image format that is recognised and not decoded",
    Reason.TRUNCATED: "the image data ends early",
    Reason.CORRUPT: "the image data cannot be decoded",
    Reason.TOO_MANY_PIXELS: "more pixels than the cap (decompression bomb)",
    Reason.UNREADABLE: "standard readers (Pillow at its defaults) refuse the file, though its pixels could be decoded",
    Reason.TOO_SMALL: "the short side has too few pixels",
    Reason.ASPECT_RATIO: "too elongated",
    Reason.BLURRED: "too little sharp detail",
    Reason.TOO_DARK: "under-exposed",
    Reason.TOO_BRIGHT: "over-exposed",
    Reason.LOW_ENTROPY: "flat or almost flat",
    Reason.BLOCKED: "on a block list",
    Reason.LICENCE: "the licence is not among those allowed",
    Reason.NO_PERSON: "too few persons found",
    Reason.PERSON_TOO_SMALL: "no person is large enough on the short side",
    Reason.PERSON_SCORE: "the person detector is not sure enough",
    Reason.HEAD_POSE: "the head is turned outside the allowed range",
    Reason.LOW_AESTHETIC: "low photographic quality or aesthetic score",
    Reason.NOT_PHOTO: "a drawing, render, screenshot or other non-photograph",
    Reason.TEXT_OVERLAY: "too much of the picture is covered by text",
    Reason.NSFW: "sexual or otherwise unsafe content",
    Reason.CONTAMINATION: "too near to a picture of an evaluation set",
    Reason.IN_CORPUS: "a picture of an earlier corpus, or too near to one",
    Reason.EXACT_DUPLICATE: "the same bytes as a kept row",
    Reason.NEAR_DUPLICATE: "within the perceptual radius of a kept row",
    Reason.SEMANTIC_DUPLICATE: "its embedding is as near to a kept row's as copies are",
    Reason.OVER_REPRESENTED: "its cluster or stratum has filled its share of the budget",
    Reason.SCORER_FAILED: "a scorer raised on this row; the error is in the ledger",
    Reason.WORKER_CRASHED: "the worker process died while it handled this row",
}
