"""docs/openapi.json, the document that the gateway serves."""

import json

from jetway.runtime.gateway.openai.openapi import document


def page() -> str:
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
