"""An OpenVINO build, stage by stage: inspect, validate, convert, compile, manifest, verify. Only a verified engine appears."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import disk, identity, manifest, offline, plan, reuse
from .describe import Built, describe
from .errors import VerifyError
from .manifest import Manifest
from .plan import Plan
from .progress import Progress
from .spec import BuildSpec
from .staging import Staging, staged

if TYPE_CHECKING:
    from openvino import CompiledModel
    from transformers import PreTrainedModel

    from .validate import Validated


def build(spec: BuildSpec, progress: Progress, *, force: bool) -> Manifest:
    """The engine in `spec.output_dir`: the one that stands there if it is of `spec` (unless `force`), else a new one.

    Raises BuildError; then, and when interrupted, nothing has changed, but that a finished conversion is kept for the
    next build of this output. Runs on the main thread.
    """
    with progress.stage("inspect"):
        planned = plan.make(spec)
        progress.say(f"{planned.config.architecture}, {planned.num_parameters / 1e6:.1f} M parameters")
        digests = planned.source.digests()
        if not force and (existing := reuse.find(planned, identity.engine_id(spec, digests))):
            progress.say("the engine is up to date")
            return existing
        reuse.check_free(spec.output_dir, force=force)
    with progress.stage("validate"):
        offline.enforce()
        from .validate import validate  # here, since it loads torch and transformers

        validated = validate(planned)
        progress.say(f"{spec.engine} engine, up to {planned.max_seq_len} tokens")
    with staged(spec.output_dir) as staging:
        if force:
            staging.clear()
        return _Build(planned, digests, validated, staging, progress).run()


@dataclass(frozen=True, slots=True)
class _Build:
    """The stages that write: `staging` holds an engine when they are through."""

    plan: Plan
    digests: Mapping[str, str]  # of the checkpoint's files
    validated: "Validated"
    staging: Staging
    progress: Progress

    def run(self) -> Manifest:
        model = self._convert()
        engine = self._compile()
        written = self._describe(model)
        self._verify(engine, model)
        return written

    def _convert(self) -> "PreTrainedModel":
        """Write the model's files, unless a build that failed later has; returns what they are made of."""
        from . import huggingface, openvino, quantize

        spec, staging, say = self.plan.spec, self.staging, self.progress.say
        conversion = identity.conversion_id(spec, self.digests)
        with self.progress.stage("convert"):
            model = huggingface.load_model(self.plan.source)
            say("weights read as f32")
            if staging.has(conversion):
                say("converted by an earlier build")
                return model
            staging.clear()
            disk.check_room(spec.output_dir, "engine", self.plan.engine_bytes)
            converted = openvino.export(model, self.plan.config)
            say("traced")
            if spec.quantization:
                converted = quantize.to_int8(converted)
                say("quantized to int8")
            openvino.save(converted, staging.directory / manifest.OPENVINO_MODEL_FILE)
            staging.keep(conversion)
            say(f"{sum(staging.files().values()) / 1e6:.1f} MB written")
        return model

    def _compile(self) -> "CompiledModel":
        from . import openvino

        spec, file = self.plan.spec, self.staging.directory / manifest.OPENVINO_MODEL_FILE
        with self.progress.stage("compile"):
            engine = openvino.compile_paged(file, spec.kv_cache_dtype, self.validated.sliding_windows)
            self.progress.say(f"paged attention in f32, KV cache in {spec.kv_cache_dtype}")
        return engine

    def _describe(self, model: "PreTrainedModel") -> Manifest:
        from . import tokenizer

        directory, text = self.staging.directory, self.validated.text
        with self.progress.stage("manifest"):
            tokens = tokenizer.special_tokens(
                text.hf_tokenizer,
                model.generation_config.eos_token_id,
                self.plan.config.vocab_size,
                self.plan.source.generation_file,
            )
            tokenizer.write(text.hf_tokenizer, text.chat_template, directory)
            files, versions = self.staging.files(), identity.package_versions(self.plan.spec)
            engine_id = identity.engine_id(self.plan.spec, self.digests)
            written = describe(self.plan, Built(engine_id, self.validated.sliding_windows, tokens, files, versions))
            manifest.write(written, directory)
            self.progress.say(f"engine {written.engine_id[:12]}")
        return written

    def _verify(self, engine: "CompiledModel", model: "PreTrainedModel") -> None:
        from . import verify

        spec = self.plan.spec
        lossy = spec.quantization is not None or spec.kv_cache_dtype != "f32"
        with self.progress.stage("verify"):
            encoding = self.validated.text.hf_tokenizer.backend_tokenizer.encode(verify.PROMPT)
            prompt = encoding.ids[: self.plan.max_seq_len]
            try:
                agreement = verify.check(engine, model, prompt, lossy=lossy)
            except VerifyError:
                self.staging.clear()  # there is nothing to go on from
                raise
            self.progress.say(f"{agreement.num_tokens} positions within {agreement.difference:.0e} of Hugging Face")
