from __future__ import annotations

import json
from collections import Counter

from pipeline.demo.make import Made
from pipeline.demo.placement import REFUSED_LICENCE, in_folder, sidecars
from pipeline.demo.plan import LICENCES, Order, plan


def made(extension: str = "jpg") -> Made:
    return Made(b"", extension, "", "", (), None, True)


def test_two_fifths_of_the_families_are_files_and_families_stay_together() -> None:
    orders = plan(2000)
    results = {order.index: made() for order in orders}
    places: dict[str, set[bool]] = {}
    for order in orders:
        places.setdefault(order.group, set()).add(in_folder(order, results))
    assert all(len(place) == 1 for place in places.values())
    share = sum(in_folder(order, results) for order in orders) / len(orders)
    assert 0.38 < share < 0.42


def test_files_without_extension_are_no_members_of_tars() -> None:
    orders = [Order(index, "format", 0) for index in range(10)]
    assert all(in_folder(order, {order.index: made("")}) for order in orders)


def test_sidecars_carry_what_the_truth_rests_on() -> None:
    styles: Counter[str] = Counter()
    for order in plan(2000):
        files = sidecars(order, 0)
        assert files == sidecars(order, 0)
        styles["+".join(files)] += 1
        values = json.loads(files["json"]) if "json" in files else {}
        assert values.get("opt_out", False) is (order.kind == "opted_out")
        if order.kind == "licence":
            assert values["licence"] == REFUSED_LICENCE
        elif values:
            assert values["licence"] in LICENCES
    assert set(styles) == {"json", "txt", ""}
    assert min(styles.values()) > 150
