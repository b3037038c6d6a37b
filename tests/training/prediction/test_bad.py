"""Pictures that are passed over are counted exactly, from several threads as well."""

from __future__ import annotations

import threading

from training.prediction.bad import BadPictures


def test_every_one_is_counted_and_the_first_are_kept_by_name() -> None:
    bad = BadPictures()

    def add(reason: str) -> None:
        for number in range(700):
            bad.add(f"{reason}-{number}", reason, "x")

    threads = [threading.Thread(target=add, args=(reason,)) for reason in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bad.counts == {"one": 700, "two": 700}
    assert (bad.total, len(bad.first)) == (1400, 1000)
