"""What costs an actor most and is the same in all of them, made once before they are forked."""

import functools
import ssl

import httpx


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """The TLS context of this process: httpx's own default, 30 ms of CPU to make, safe to share."""
    return httpx.create_ssl_context()
