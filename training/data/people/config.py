"""The configuration of the people renderer."""

from __future__ import annotations

from pydantic import Field, field_validator

from curation.config import Config


class PeopleConfig(Config):
    """What the pictures hold. Every number is ours: chosen so that small models see variety at 256 x 192."""

    size: tuple[int, int] = Field((256, 192), description="height and width of a picture, pixels")
    people: tuple[int, int] = Field((1, 2), description="fewest and most people that are placed, 0 to 4")
    seed: int = Field(0, ge=0, lt=2**63, description="pictures of two seeds are unrelated")
    portraits: float = Field(0.3, ge=0, le=1, description="share of pictures that are framed on heads and shoulders")
    facing: float = Field(0.75, ge=0, le=1, description="share of people turned to the camera by 70 degrees or less")
    glasses: float = Field(0.2, ge=0, le=1, description="share of people with eyeglasses")
    hats: float = Field(0.15, ge=0, le=1, description="share of people with a hat")
    open_mouths: float = Field(0.3, ge=0, le=1, description="share of people whose teeth show")
    bare: float = Field(0.1, ge=0, le=1, description="share of people with a bare torso, in shorts")
    patterns: float = Field(0.5, ge=0, le=1, description="share of garments with a pattern")
    focal: tuple[float, float] = Field(
        (0.9, 2.6),
        description="shortest and longest focal length, picture heights (58 to 22 degrees from top to bottom); equal "
        "ones: always the same camera, so that size tells distance",
    )
    blur: float = Field(0.5, ge=0, le=5, description="standard deviation of the lens blur, pixels; at most")
    noise: float = Field(0.02, ge=0, le=0.5, description="standard deviation of sensor noise, sRGB 0..1; at most")

    @field_validator("size")
    @classmethod
    def _size(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not all(16 <= side <= 8192 for side in value):
            raise ValueError(f"size: height and width must be 16 to 8192 pixels, got {value}")
        return value

    @field_validator("focal")
    @classmethod
    def _focal(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0.5 <= value[0] <= value[1] <= 10:
            raise ValueError(f"focal: give shortest <= longest, both 0.5 to 10 picture heights, got {value}")
        return value

    @field_validator("people")
    @classmethod
    def _people(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= value[0] <= value[1] <= 4:
            raise ValueError(f"people: give fewest <= most, both 0 to 4, got {value}")
        return value
