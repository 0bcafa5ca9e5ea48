"""Servers that tests start for themselves, on free loopback ports, and stop."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.servers import redis
from benchmarks.servers.kafka import free_ports


def free_port() -> int:
    return free_ports(1)[0]


class RedisServer(redis.RedisServer):
    def start(self) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("no redis-server here; install it with: apt-get install -y redis-server")
        super().start()
