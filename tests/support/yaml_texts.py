"""YAML texts, read by the reader of previews."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from webhook.core.preview.document import DocumentError
from webhook.core.preview.yaml_documents import load_documents


def load(text: str | bytes) -> Any:
    (document,) = load_documents(text, "f.yaml")
    return document.value


def refused(text: str | bytes) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load_documents(text, "f.yaml")
    return caught.value


CHARACTERS = "a1:-[]{},'\"?|>~#%=!_ \n\té\u2028\U0001f600"
TOKENS = ["&x ", "*x", "<<", "0x_", "---\n", ": ", "- ", "!!int ", "!!bool ", "!!timestamp ", "08"]
YAMLISH = st.lists(st.sampled_from(CHARACTERS) | st.sampled_from(TOKENS), max_size=20).map("".join)
