"""The bytes of files, in a directory that API and workers share.

A file is whole or not there: it is written beside its place, synced and moved. Its row in the
database follows, so a row without bytes means that they were lost; bytes without a row, left by
a process that died between the two, are never looked at. All disk work runs in threads.
"""

import asyncio
import os
from pathlib import Path

from shared.errors import GoneError, UnavailableError
from shared.ids import FileId


class FileStoreError(UnavailableError):
    """The directory of files cannot be used now."""

    code = "files_unavailable"


class FileStore:
    """Files in one directory, by id. It is made with the first file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, file_id: FileId, content: bytes) -> None:
        """Store bytes; they survive a power failure afterwards. Raises FileStoreError."""
        try:
            await asyncio.to_thread(_write, self._folder, file_id, content)
        except OSError as error:
            raise _unusable(error) from error

    async def read(self, file_id: FileId) -> bytes:
        """Return a file's bytes. Raises GoneError if there are none, FileStoreError."""
        try:
            return await asyncio.to_thread((self._folder / file_id).read_bytes)
        except FileNotFoundError as error:
            raise GoneError(
                f"The bytes of {file_id} are no longer there: upload the image again",
            ) from error
        except OSError as error:
            raise _unusable(error) from error

    async def remove(self, file_id: FileId) -> None:
        """Remove bytes that got no row. Raises FileStoreError."""
        try:
            await asyncio.to_thread((self._folder / file_id).unlink, missing_ok=True)
        except OSError as error:
            raise _unusable(error) from error


def _write(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{name}"
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / name)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync(folder)


def _sync(folder: Path) -> None:
    """Make the folder's entries survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(error: OSError) -> FileStoreError:
    return FileStoreError(
        f"Files cannot be stored or read now ({error.strerror}): check TURNMILL_FILES_DIR and its"
        " disk, and try again",
    )
