"""The TLS context of a process, where the usual authorities cannot be loaded."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import warm

PLAN = """
[run]
agent = "a"
task = "Which file mentions a timeout?"
[provider]
kind = "scripted"
script = "plan"
BASE
[agents.a]
"""


@pytest.fixture(params=["", "no certificate", None])
def authorities(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A file named by SSL_CERT_FILE which holds nothing of use, or is not there."""
    path = tmp_path / "authorities.pem"
    if request.param is not None:
        path.write_text(request.param)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    caches = (warm._default, warm._bare)
    for cache in caches:
        cache.cache_clear()
    yield path
    for cache in caches:
        cache.cache_clear()


def test_http_needs_no_authorities(authorities: Path):
    """What warms a process up does not fail for them, and a server without TLS can be asked."""
    warm.prepare()
    assert isinstance(warm.tls("http://127.0.0.1"), ssl.SSLContext)


def test_https_without_authorities_says_which_variable_to_look_at(authorities: Path):
    """The error names what the file was given by."""
    with pytest.raises(warm.TlsError, match="SSL_CERT_FILE"):
        warm.tls("https://127.0.0.1")


@pytest.mark.parametrize("spawner", ["zygote", "subprocess"])
@pytest.mark.parametrize("base", ["http", "https"])
def test_a_run_fails_only_where_it_needs_them(tmp_path: Path, spawner: str, base: str):
    """A scripted run completes; one that needs https is recorded as failed, in words."""
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    config = PLAN.replace("BASE", "")
    if base == "https":
        config = config.replace('"scripted"', '"openai"').replace("script =", "model =")
        config = config.replace("[agents.a]", 'base_url = "https://127.0.0.1:9"\n[agents.a]')
    (tmp_path / "run.toml").write_text(config)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "run", "run.toml", "--state-dir", "state"],
        cwd=tmp_path,
        env={**os.environ, "SSL_CERT_FILE": str(bad), "EXEUNT_SPAWN": spawner},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    if base == "http":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1, done.stderr
        assert "SSL_CERT_FILE" in done.stderr
