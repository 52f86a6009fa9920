"""vLLM's side of `scripts/bench priority`: one engine in this process, driven step by step; runs in its environment.

    PYTHON priority_vllm.py CHECKPOINT SETTINGS

SETTINGS is a JSON object of LLMEngine's arguments. Each line of standard input is a load (loads.py, `Load`); each is
run and answered by one line.
"""

import json
import os
import sys
import time
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; how much of it is used is in SETTINGS
    "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
}
BATCH, INTERACTIVE = 1, -1  # lower goes first

import vllm  # type: ignore[import-not-found]  # it is in the peer's environment only, and reads the variables above


def run(engine: Any, load: dict[str, Any]) -> dict[str, Any]:
    """Times are seconds from the start."""
    batch, arrivals = list(reversed(load["batch"])), list(reversed(load["interactive"]))
    at_s = {job["id"]: job["at_s"] for job in arrivals}
    first_tokens_s: dict[str, float] = {}
    num_tokens = 0
    begin = time.perf_counter()
    for _ in range(load["num_outstanding"]):
        add(engine, batch.pop(), BATCH)
    while engine.has_unfinished_requests() or arrivals:
        while arrivals and at_s[arrivals[-1]["id"]] <= time.perf_counter() - begin:
            add(engine, arrivals.pop(), INTERACTIVE)
        for output in engine.step():
            id, count = output.request_id, len(output.outputs[0].token_ids)
            num_tokens += count
            if count and id in at_s:
                first_tokens_s.setdefault(id, time.perf_counter() - begin - at_s[id])
            if output.finished and id not in at_s and batch:
                add(engine, batch.pop(), BATCH)
    elapsed_s = time.perf_counter() - begin
    return {"elapsed_s": elapsed_s, "num_tokens": num_tokens, "first_tokens_s": list(first_tokens_s.values())}


def add(engine: Any, job: dict[str, Any], priority: int) -> None:
    sampling = vllm.SamplingParams(
        max_tokens=job["max_tokens"],
        temperature=0.0,
        ignore_eos=True,
        detokenize=False,
        output_kind=vllm.sampling_params.RequestOutputKind.DELTA,
    )
    engine.add_request(job["id"], {"prompt_token_ids": job["prompt"]}, sampling, priority=priority)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else it prints
    arguments = vllm.EngineArgs(model=sys.argv[1], skip_tokenizer_init=True, dtype="float32", **json.loads(sys.argv[2]))
    engine = vllm.LLMEngine.from_engine_args(arguments)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(engine, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
