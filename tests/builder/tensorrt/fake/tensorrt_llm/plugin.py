from typing import Any

from tests.builder.tensorrt import contract


class PluginConfig:
    def __init__(self, **arguments: Any) -> None:
        assert contract.violations(arguments, contract.PLUGIN_CONFIG) == []
        self.arguments = arguments
