"""What a person can do about a provider that cannot be asked: the step that its error ends with."""

import re

import httpx

from actors.provider_error import ProviderError
from actors.spec import ProviderSpec
from actors.text import excerpt

URL_MAX = 200
_CONTENT = re.compile(r"\bcontent\b.{0,80}\b(null|none|string|str|empty|required|missing|blank)\b")

_ROLES = re.compile(r"roles? must alternate")


def remedy(error: ProviderError, spec: ProviderSpec, base_url: str, *, has_key: bool) -> str:
    """A clause that names what to look at and what to do; empty where the error says it all."""
    if spec.base_url is None:
        # The scripted provider is ours: it has no address, key or account to look at.
        return f"check the script {spec.model}" if error.kind == "not_found" else ""
    url, model = shown_url(base_url), excerpt(spec.model, 100)
    key = spec.api_key_env or "OPENAI_API_KEY"
    match error.kind:
        case "connection":
            return f"start the server or correct base_url ({url}), which exeunt doctor CONFIG tries"
        case "tls" if "certificate" in error.words:
            return (
                f"correct base_url ({url}), or name the file of the authority that signed it in "
                "the variable SSL_CERT_FILE"
            )
        case "tls":
            return f"correct base_url ({url}), as https:// is for servers that speak TLS"
        case "auth" if has_key:
            return f"check that the key in {key} is good for {model} at {url}"
        case "auth":
            return f"no key was sent to {url}: export one in {key}"
        case "quota":
            return f"see to the account of the key in {key}"
        case "not_found":
            return (
                f"check model {model} and base_url ({url}), which often ends in /v1; exeunt doctor "
                "CONFIG asks the server what it has"
            )
        case "redirect":
            return f"correct base_url ({url})"
        case "broken" if "HTTP 200" in error.words:
            return f"if it stays so, correct base_url ({url}), which often ends in /v1"
        case "invalid_request" if _CONTENT.search(error.words.lower()):
            return "empty_content in [provider] says how messages of calls alone are sent"
        case "invalid_request" if _ROLES.search(error.words.lower()):
            return "set merge_user_messages in [provider] to true"
        case _:
            return ""


def shown_url(url: str) -> str:
    """An address as it may be shown: without password, query and fragment."""
    try:
        parsed = httpx.URL(url).copy_with(userinfo=b"", query=None, fragment=None)
    except (httpx.InvalidURL, UnicodeError):
        return "not a URL"
    return excerpt(str(parsed).rstrip("/"), URL_MAX)
