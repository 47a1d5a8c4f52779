"""Keys out of everything that people, logs or models may read. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote

_MASK = "***"
_KEY_LIKE = re.compile(r"\b(sk|pk|rk|gsk|xai|hf|key)[-_][\w.*…\-]{4,}|\bAIza[\w*\-]{8,}")
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=*…\-]{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"([?&](?:api[_-]?key|key|token|access_token)=)[^&\s\"']+", re.IGNORECASE)


class Scrubber:
    """Knows one key; replaces it, and what looks like a key or a part of one, by `***`."""

    def __init__(self, api_key: str) -> None:
        forms = {api_key, quote(api_key, safe="")} if len(api_key) >= 3 else set()
        self._forms = sorted(forms, key=len, reverse=True)

    def exact(self, text: str) -> str:
        """Only the key itself: for what a model wrote."""
        for form in self._forms:
            text = text.replace(form, _MASK)
        return text

    def __call__(self, text: str) -> str:
        text = _USERINFO.sub("", self.exact(text))
        text = _QUERY.sub(rf"\1{_MASK}", text)
        text = _BEARER.sub(rf"\1 {_MASK}", text)
        return _KEY_LIKE.sub(_MASK, text)
