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


def test_files_have_room_for_every_figure_from_the_start(tmp_path: Path) -> None:
    """Nothing is left to be mapped anew, where a full disk would kill the process."""
    observed = subprocess.check_output([sys.executable, "-c", EVERYTHING, tmp_path], text=True)
    assert observed == "ok\n"
    files = sorted(file.name.rpartition("_")[0] for file in tmp_path.iterdir())
    assert files == ["counter", "gauge_livesum", "histogram"]
    assert {file.stat().st_size for file in tmp_path.iterdir()} == {1 << 16}


EVERYTHING = """if True:
    import sys
    from pathlib import Path
    from jetway.runtime.gateway.metrics.sharing import share
    share(Path(sys.argv[1]))
    from jetway.runtime.errors import EDGES
    from jetway.runtime.gateway.metrics.instruments import Metrics
    metrics = Metrics()
    for edge in EDGES.values():
        metrics.requests.labels(edge.code.lower())
    metrics.time_to_first_token.observe(0.2)
    print("ok")
"""


def test_without_room_it_is_an_error_by_name(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    code = f"""if True:
        import resource
        from pathlib import Path
        from jetway.runtime.errors import Unavailable
        from jetway.runtime.gateway.metrics.sharing import share
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            share(Path({str(tmp_path)!r}))
        except Unavailable as error:
            print(error.message)
    """
    said = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    assert said == f"the figures of this gateway cannot be kept in {tmp_path}: File too large"
    assert list(tmp_path.iterdir()) == []
