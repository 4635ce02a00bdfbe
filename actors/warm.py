"""What costs an actor most and is the same in all of them, made once before they are forked."""

import contextlib
import functools
import ssl

import httpx


class TlsError(Exception):
    """No TLS context can be made, in words: what the environment names as authorities is wrong."""


def tls(base_url: str) -> ssl.SSLContext:
    """The TLS context for a server, shared by all that this process forks; raises TlsError.

    For https it is httpx's own default, which takes 30 ms of CPU to make. What http never uses is
    made all the same, for httpx would make one, which costs each process a megabyte.
    """
    return _default() if base_url.lower().startswith("https:") else _bare()


def prepare() -> None:
    """Make both; what cannot be made is told to who needs it."""
    _bare()
    with contextlib.suppress(TlsError):
        _default()


@functools.cache
def _default() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise TlsError(
            "the certificates of the usual authorities cannot be loaded, without which there is no "
            f"https ({error}); look at what SSL_CERT_FILE and SSL_CERT_DIR name"
        ) from error


@functools.cache
def _bare() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
