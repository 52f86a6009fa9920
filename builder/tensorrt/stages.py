"""A TensorRT build, stage by stage: inspect, preflight, validate, convert, build, manifest; or the conversion alone."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetway.builder import disk, identity, manifest, offline, reuse
from jetway.builder.checkpoint import CONFIG_FILE, read_json
from jetway.builder.describe import Built, describe
from jetway.builder.errors import ConversionError
from jetway.builder.fields import Fields
from jetway.builder.manifest import Manifest, ManifestError, TensorRtBuild, Tokens
from jetway.builder.plan import Plan
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.staging import Staging, staged
from jetway.builder.windows import shortest

from . import exclusions, plan, preflight, upstream, windows, workers
from .engine_config import check_as_asked
from .machine import Machine
from .plan import TensorRtPlan
from .workers import Job

if TYPE_CHECKING:
    from jetway.builder.validate import Text

CHECKPOINT_DIR = "checkpoint"  # the converted model, in staging; no part of an engine


def convert(spec: BuildSpec, progress: Progress, inspect: Callable[[], Machine], *, force: bool) -> None:
    """A TensorRT-LLM checkpoint in `spec.output_dir`, for `trtllm-build`. Raises BuildError; then nothing has changed.

    Only where TensorRT-LLM converts the model does it ask for the machine.
    """
    with progress.stage("inspect"):
        planned = plan.make(spec)
        exclusions.check_data(planned.spec)
        progress.say(_words(planned))
        reuse.check_free(spec.output_dir, force=force)
    with progress.stage("validate"):
        if (window := _sliding_window(planned)) is not None:
            progress.say(f"layers see {window} tokens, so trtllm-build may have no more as --max_seq_len")
    with staged(spec.output_dir) as staging, progress.stage("convert"):
        staging.clear()
        disk.check_room(spec.output_dir, "converted checkpoint", planned.checkpoint_bytes)
        _convert(planned, staging.directory, inspect, progress.say)
        _mark(staging.directory / CONFIG_FILE)


def build(spec: BuildSpec, progress: Progress, inspect: Callable[[], Machine], *, force: bool) -> Manifest:
    """The engines of all ranks in `spec.output_dir`: those that stand there if they are of `spec`, else new ones.

    Raises BuildError; then, and when interrupted, nothing has changed, but that a finished conversion is kept for the
    next build of this output, and the workers' logs.
    """
    with progress.stage("inspect"):
        planned = plan.make(spec)
        exclusions.check_build(planned.spec, planned.plan.max_seq_len)
        windows.check(planned.plan, planned.sliding_window)
        exclusions.check_data(planned.spec)
        progress.say(_words(planned))
    with progress.stage("preflight"):
        machine = inspect()
        preflight.check(planned, machine)
        progress.say(f"{len(preflight.gpus_used(planned, machine))} of {len(planned.ranks)} ranks at a time")
        digests = planned.plan.source.digests()
        built_on = [*machine.versions.values(), machine.compute_capability]
        engine_id = identity.engine_id(planned.spec, digests, built_on)
        if not force and (existing := reuse.find(planned.plan, engine_id)):
            progress.say("the engine is up to date")
            return existing
        reuse.check_free(spec.output_dir, force=force)
    with progress.stage("validate"):
        text = _Text.of(planned.plan)
        windows.check(planned.plan, _sliding_window(planned))
    with staged(spec.output_dir) as staging:
        if force:
            staging.clear()
        stages = _Build(planned, machine, staging, progress)
        stages.convert(identity.conversion_id(planned.spec, digests))
        stages.build()
        return stages.describe(engine_id, text)


@dataclass(frozen=True, slots=True)
class _Text:
    """The tokenizer, checked before hours of work."""

    text: "Text"
    tokens: Tokens

    def write(self, directory: Path) -> None:
        from jetway.builder import tokenizer

        tokenizer.write(self.text.hf_tokenizer, self.text.chat_template, directory)

    @classmethod
    def of(cls, planned: Plan) -> "_Text":
        """Raises CheckpointError."""
        offline.enforce()
        from jetway.builder import tokenizer  # here, since they load torch and transformers
        from jetway.builder.validate import read_text

        text, source = read_text(planned), planned.source.generation_file
        declared = read_json(source).get("eos_token_id")
        tokens = tokenizer.special_tokens(text.hf_tokenizer, declared, planned.config.vocab_size, source)
        return cls(text, tokens)


@dataclass(frozen=True, slots=True)
class _Build:
    """The stages that write: `staging` holds an engine when they are through."""

    plan: TensorRtPlan
    machine: Machine
    staging: Staging
    progress: Progress

    def convert(self, conversion: str) -> None:
        """Write the checkpoint, unless a build that failed later has."""
        with self.progress.stage("convert"):
            if self.staging.has(conversion):
                self.progress.say("converted by an earlier build")
                return
            self.staging.clear()
            directory = self.staging.directory / CHECKPOINT_DIR
            directory.mkdir()
            _convert(self.plan, directory, lambda: self.machine, self.progress.say)
            self.staging.keep(conversion)

    def build(self) -> None:
        """Build every rank's engine, each in a process of its own. Raises ConversionError."""
        gpus = preflight.gpus_used(self.plan, self.machine)
        with self.progress.stage("build"):
            self.progress.say(f"logs in {self.plan.logs_dir}")
            workers.run(self._jobs(), gpus=[gpu.uuid for gpu in gpus], say=self.progress.say)
            check_as_asked(Fields(self.staging.directory / CONFIG_FILE), self.plan.build_config)

    def _jobs(self) -> Iterator[Job]:
        for rank in self.plan.ranks:
            request: dict[str, Any] = {
                "job": "build",
                "rank": rank.index,
                "checkpoint_dir": str((self.staging.directory / CHECKPOINT_DIR).absolute()),
                "output_dir": str(self.staging.directory.absolute()),
                "build_config": self.plan.build_config,
            }
            yield Job(f"rank {rank.index}", request, self.plan.logs_dir / f"rank{rank.index}.log")

    def describe(self, engine_id: str, text: _Text) -> Manifest:
        """Write the tokenizer and the manifest."""
        spec, directory = self.plan.spec, self.staging.directory
        with self.progress.stage("manifest"), _as_conversion_error():
            self.staging.drop(CHECKPOINT_DIR)
            text.write(directory)
            files = {name: size for name, size in self.staging.files().items() if name != CONFIG_FILE}
            versions = identity.package_versions(spec) | self.machine.versions
            built = Built(engine_id, (), text.tokens, files, versions, self._facts())
            manifest.write(describe(self.plan.plan, built), directory)
            self.progress.say(f"engine {engine_id[:12]}")
            return manifest.read(directory)

    def _facts(self) -> TensorRtBuild:
        options = self.plan.spec.tensorrt
        return TensorRtBuild(
            tensorrt_llm_version=self.machine.versions["tensorrt_llm"],
            tensorrt_version=self.machine.versions["tensorrt"],
            compute_capability=self.machine.compute_capability,
            tp_size=options.tp_size,
            pp_size=options.pp_size,
            logits_dtype=Fields(self.staging.directory / CONFIG_FILE).text("pretrained_config.logits_dtype"),
        )


@contextmanager
def _as_conversion_error() -> Iterator[None]:
    """Of a config.json that TensorRT-LLM wrote otherwise than it was asked."""
    try:
        yield
    except ManifestError as error:
        raise ConversionError(str(error)) from error


def _convert(
    planned: TensorRtPlan, directory: Path, inspect: Callable[[], Machine], say: Callable[[str], None]
) -> None:
    """Write a TensorRT-LLM checkpoint into `directory`: Jetway's conversion where it has one, else TensorRT-LLM's."""
    if planned.decoder is not None:
        from .convert import write_checkpoint  # here, since it loads torch

        write_checkpoint(planned, planned.decoder, directory, say)
        return
    machine = inspect()
    preflight.check_conversion(planned, machine)
    upstream.check_no_code(planned)
    jobs = upstream.jobs(planned, str(directory.absolute()))
    workers.run(jobs, gpus=[upstream.gpu(planned, machine)], say=say)


def _mark(config_file: Path) -> None:
    """Say whose work this checkpoint is, so that --force may replace it."""
    document = json.loads(config_file.read_text(encoding="utf-8"))
    document["jetway"] = {"converted_by": identity.package_version()}
    config_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _sliding_window(planned: TensorRtPlan) -> int | None:
    """What the layer sees that sees fewest tokens. Raises CheckpointError for tensors that are not as config.json says."""
    if planned.decoder is not None:
        return planned.sliding_window
    offline.enforce()
    from jetway.builder.validate import acting_windows  # here, since it loads torch and transformers

    return shortest(acting_windows(planned.plan))


def _words(planned: TensorRtPlan) -> str:
    spec, found = planned.spec, planned.plan
    parameters = f"{found.config.architecture}, {found.num_parameters / 1e6:.1f} M parameters"
    number = len(planned.ranks)
    return f"{parameters}, {number} {'rank' if number == 1 else 'ranks'} in {spec.quantization or spec.dtype}"
