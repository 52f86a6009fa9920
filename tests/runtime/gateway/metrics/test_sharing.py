"""Two processes that count into one directory; the library looks for it once, so each is a fresh one."""

import os
import subprocess
import sys
from pathlib import Path

COUNT = """if True:
    import sys
    from pathlib import Path
    from jetway.runtime.gateway.metrics.sharing import share
    share(Path(sys.argv[1]))
    from jetway.runtime.gateway.metrics.instruments import Metrics
    metrics = Metrics()
    metrics.prompt_tokens.inc(3)
    metrics.live_requests.inc()
    metrics.time_to_first_token.observe(0.2)
    samples = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    names = ("jetway_prompt_tokens_total", "jetway_live_requests", "jetway_time_to_first_token_seconds_count")
    print([samples[name] for name in names])
"""


def counted(directory: Path) -> str:
    return subprocess.check_output([sys.executable, "-c", COUNT, directory], text=True, env=os.environ).strip()


def test_what_a_dead_gateway_counted_stays_and_what_lived_in_it_does_not(tmp_path: Path) -> None:
    directory = tmp_path / "metrics"
    assert counted(directory) == "[3.0, 1.0, 1.0]"
    assert counted(directory) == "[6.0, 1.0, 2.0]"
