"""The application without a socket, and a real server process with one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium, start_chromium
from tests.support.preview_page import http, page, page_server
from tests.support.server_fixtures import client, serve, server, source

__all__ = ["client", "http", "page", "page_server", "serve", "server", "source"]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with start_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
