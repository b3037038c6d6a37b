import threading
import time

import pytest

from curation.records import Payload
from curation.sources import UrlsConfig
from curation.sources.download import Downloader
from curation.sources.ordered import ByteBudget, OverBudgetError, download_in_order
from tests.fixtures.http_server import odd_server
from tests.fixtures.tars import picture

CONFIG = UrlsConfig(path="-", allow_private_addresses=True, backoff_s=0.01, per_host=4)


def run(urls: list[str], budget: int = 1 << 30, concurrency: int = 8) -> list[Payload]:
    return list(download_in_order(urls, lambda: Downloader(CONFIG, 1 << 24), budget, concurrency))


def test_order_is_kept() -> None:
    with odd_server() as server:
        payloads = run([f"{server.url}/image/{n}" for n in range(60)])
    assert [item.data for item in payloads] == [picture(n) for n in range(60)]


def test_downloads_go_on_while_the_caller_works_but_not_without_bound() -> None:
    with odd_server() as server:
        urls = [f"{server.url}/image/{n}" for n in range(40)]
        payloads = download_in_order(urls, lambda: Downloader(CONFIG, 1 << 20), 1 << 30, 4)
        next(payloads)
        deadline = time.monotonic() + 5
        while sum(server.requests.values()) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert sum(server.requests.values()) == 8
        assert len(list(payloads)) == 39


def test_a_small_budget_still_delivers_everything_once() -> None:
    with odd_server() as server:
        payloads = run([f"{server.url}/image/{n}/200000" for n in range(25)], budget=300_000, concurrency=10)
    assert [item.data for item in payloads] == [picture(n, 200_000) for n in range(25)]


def test_closing_early_ends_the_thread() -> None:
    before = threading.active_count()
    with odd_server() as server:
        payloads = download_in_order(
            [f"{server.url}/image/1", *[f"{server.url}/hang"] * 5], lambda: Downloader(CONFIG, 1 << 20), 1 << 30, 8
        )
        assert next(payloads).data == picture(1)
        started = time.monotonic()
        payloads.close()
        assert time.monotonic() - started < 3
        assert not [thread for thread in threading.enumerate() if thread.name == "downloads"]
    assert threading.active_count() <= before + 8


def test_the_budget_refuses_all_but_the_next_one() -> None:
    budget = ByteBudget(100)
    budget.grow(3, 80)
    with pytest.raises(OverBudgetError):
        budget.grow(4, 30)
    budget.grow(0, 500)
    assert budget.total == 580
    budget.advance(4)
    assert budget.total == 0
    budget.grow(5, 100)
    assert (budget.total, budget.peak) == (100, 580)
