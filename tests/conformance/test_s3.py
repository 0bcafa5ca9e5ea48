"""The contract of every store, with the bytes of checkpoints behind the real S3 protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from benchmarks.servers.s3 import CREDENTIALS, S3Server
from seep.errors import Misuse
from seep.protocol.effects import LoadCheckpoints, PutCheckpoint
from seep.runtime.stores.directory import DirectoryStore
from seep.runtime.stores.objects import ObjectStore
from seep.runtime.stores.objects import check as check_objects
from tests.conformance.test_store import KEY, PART, Contract, ask, checkpoint, put, spread, versions

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, S3Server(tmp_path_factory.mktemp("s3")) as made:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield made


class TestS3(Contract):
    @pytest.fixture
    def url(self, server: S3Server) -> str:
        return server.url(secrets.token_hex(4))

    @pytest.fixture
    def store(self, url: str, tmp_path: Path) -> ObjectStore:
        return ObjectStore(DirectoryStore(tmp_path / "store", KEY), url, KEY)

    def test_the_bytes_are_there_and_go_when_forgotten(self, store: ObjectStore, url: str, server: S3Server) -> None:
        folder = FileSelector(url.removeprefix("s3://").partition("?")[0], allow_not_found=True, recursive=True)

        def objects() -> list[str]:
            return [found.path for found in server.files().get_file_info(folder) if found.is_file]

        put(store, spread(1), spread(2, 1))
        assert len(objects()) == 2
        store.forget()
        assert objects() == []

    def test_a_bucket_that_is_not_there_is_refused(self, server: S3Server) -> None:
        check_objects(server.url("fine"))
        with pytest.raises(Misuse, match="cannot be written to"):
            check_objects(server.url("x").replace(server.bucket, "nobodys"))

    def test_one_that_is_away_fails_and_one_that_has_forgotten_is_not_empty(
        self, store: ObjectStore, server: S3Server
    ) -> None:
        put(store, checkpoint(1))
        server.kill()
        try:
            assert ask(store, PutCheckpoint(1, checkpoint(2))).error == "failed"
            assert ask(store, LoadCheckpoints(1, PART)).error == "failed"
        finally:
            server.start()
        assert ask(store, LoadCheckpoints(1, PART)).error == "damaged", "it had one, and says so"
        put(store, checkpoint(2))
        assert versions(store) == [2]
