import json
import os
import time
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

VISIBLE = "CUDA_VISIBLE_DEVICES"


class PretrainedConfig:
    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.architecture = fields["architecture"]
        self.rank = 0

    @classmethod
    def from_json_file(cls, path: str) -> "PretrainedConfig":
        if os.environ.get("FAKE_TENSORRT_LLM") == "stall":
            time.sleep(600)
        return cls(json.loads(Path(path).read_text()))

    def set_rank(self, rank: int) -> None:
        self.rank = rank


class QuantConfig:
    def __init__(self, *, quant_algo: str | None, kv_cache_quant_algo: str | None) -> None:
        self.fields = {"quant_algo": quant_algo, "kv_cache_quant_algo": kv_cache_quant_algo}


class FakeModel:
    def __init__(self, config: PretrainedConfig) -> None:
        self.config = config

    @classmethod
    def from_checkpoint(cls, directory: str, *, config: PretrainedConfig) -> "FakeModel":
        print("loads rank", config.rank, "on", os.environ[VISIBLE])
        load_file(Path(directory) / f"rank{config.rank}.safetensors")
        return cls(config)

    @classmethod
    def from_hugging_face(
        cls,
        directory: str,
        *,
        dtype: str,
        mapping: Any,
        quant_config: QuantConfig,
        load_model_on_cpu: bool,
        trust_remote_code: bool,
    ) -> "FakeModel":
        assert load_model_on_cpu
        assert not trust_remote_code
        fields = json.loads((Path(directory) / "config.json").read_text())
        sizes = {"tp_size": mapping.tp_size, "pp_size": mapping.pp_size, "world_size": mapping.world_size}
        config = PretrainedConfig(
            {
                "architecture": fields["architectures"][0],
                "dtype": dtype,
                "mapping": sizes,
                "quantization": quant_config.fields,
            }
        )
        config.set_rank(mapping.rank)
        return cls(config)

    @classmethod
    def quantize(cls, directory: str, output: str, *, calib_dataset: str, **arguments: Any) -> None:
        print("measures on", calib_dataset, "with", os.environ[VISIBLE])
        model = cls.from_hugging_face(directory, load_model_on_cpu=True, **arguments)
        for rank in range(arguments["mapping"].world_size):
            model.config.set_rank(rank)
            model.save_checkpoint(output, save_config=rank == 0)

    def save_checkpoint(self, directory: str, *, save_config: bool) -> None:
        save_file({}, Path(directory) / f"rank{self.config.rank}.safetensors")
        if save_config:
            (Path(directory) / "config.json").write_text(json.dumps(self.config.fields))
