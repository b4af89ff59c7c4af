"""Messages between two processes, with time limits."""

from __future__ import annotations

import pickle
import socket
import struct
import time
from typing import Any

_HEADER = struct.Struct("!Q")
_PIECE = 1 << 20


class Channel:
    """Sends and receives picklable objects over one end of a socket pair.

    Raises `TimeoutError` if the other end is too slow, and `EOFError` if it is gone. After either
    error the channel is unusable."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @property
    def fileno(self) -> int:
        """The file descriptor, for waiting on several channels."""
        return self._socket.fileno()

    def send(self, message: Any, seconds: float | None = None) -> None:
        """Sends a message, within a time limit unless that is None."""
        data = pickle.dumps(message)
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(_HEADER.pack(len(data)) + data)
        except ConnectionError as error:
            raise EOFError from error

    def receive(self, seconds: float | None = None) -> Any:
        """Returns the next message, within a time limit unless that is None."""
        deadline = None if seconds is None else time.monotonic() + seconds
        (size,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return pickle.loads(self._read(size, deadline))

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int, deadline: float | None) -> bytes:
        read = bytearray()
        while len(read) < size:
            if deadline is not None:
                # A timeout of 0 would mean non-blocking, with other errors.
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                piece = self._socket.recv(min(size - len(read), _PIECE))
            except ConnectionError as error:
                raise EOFError from error
            if not piece:
                raise EOFError
            read += piece
        return bytes(read)
