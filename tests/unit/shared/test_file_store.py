"""The directory of files: whole or not there, and sentences when it cannot be used."""

from pathlib import Path

import pytest

from shared.errors import GoneError
from shared.file_store import FileStore, FileStoreError
from shared.ids import FileId, new_file_id


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_bytes_come_back_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "files"
    store, file_id = FileStore(folder), new_file_id()
    await store.write(file_id, b"bytes")
    assert await store.read(file_id) == b"bytes"
    assert names(folder) == [file_id]
    await store.remove(file_id)
    await store.remove(file_id)
    assert names(folder) == []


async def test_missing_bytes_are_gone(tmp_path: Path) -> None:
    with pytest.raises(GoneError, match=r"file_1.*upload"):
        await FileStore(tmp_path / "none").read(FileId("file_1"))


async def test_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = FileStore(tmp_path / "file")
    with pytest.raises(FileStoreError, match="TURNMILL_FILES_DIR"):
        await store.write(FileId("file_1"), b"bytes")
    with pytest.raises(FileStoreError, match="TURNMILL_FILES_DIR"):
        await store.read(FileId("file_1"))


async def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file_1").mkdir()  # what the bytes cannot be moved to
    with pytest.raises(FileStoreError):
        await FileStore(tmp_path).write(FileId("file_1"), b"bytes")
    assert names(tmp_path) == ["file_1"]
