"""TensorRT-LLM's plugins, registered with TensorRT before an engine that needs them is loaded.

contracts/tensorrt-llm.md section 3.6. The library is loaded without its Python package where that works: importing the
package takes many seconds, starts MPI, and does not return where MPI cannot start.
"""

import ctypes
import importlib.util
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jetway.runtime.errors import ConfigError

PACKAGE = "tensorrt_llm"
LIBRARY = "libs/libnvinfer_plugin_tensorrt_llm.so"
NAMESPACE = b"tensorrt_llm"
INSTALL = "install jetway-llm[tensorrt] in the executor's environment (executor.python)"


def register_plugins() -> None:
    """Raises ConfigError where they are not to be had, or would not compute."""
    _require_computing()
    spec = importlib.util.find_spec(PACKAGE)  # imports nothing
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"a TensorRT engine needs {PACKAGE}: {INSTALL}")
    try:
        library = ctypes.CDLL(str(Path(spec.submodule_search_locations[0]) / LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        _import_instead(error)
        return
    library.initTrtLlmPlugins.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.initTrtLlmPlugins.restype = ctypes.c_bool
    if not library.initTrtLlmPlugins(None, NAMESPACE):
        raise ConfigError(f"{LIBRARY} of {PACKAGE} does not register its plugins with this TensorRT; {INSTALL}")


def _import_instead(reason: OSError) -> None:
    """The package finds libraries that the loader alone does not."""
    try:
        import_package()
    except ConfigError as error:
        raise ConfigError(f"{LIBRARY} cannot be loaded ({reason}), nor the package: {error.message}") from error


def import_package() -> None:
    """It registers the plugins itself. Raises ConfigError."""
    _require_computing()
    try:
        importlib.import_module(PACKAGE)
    except (ImportError, OSError) as error:
        raise ConfigError(f"{PACKAGE} cannot be imported: {error}") from error


def _require_computing() -> None:
    if "IS_BUILDING" in os.environ:
        raise ConfigError("IS_BUILDING is set: TensorRT-LLM's attention would return without computing; unset it")


def package_version(package: str) -> str:
    """Raises ConfigError where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ConfigError(f"a TensorRT engine needs {package}: {INSTALL}") from error
