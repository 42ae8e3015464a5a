"""A Flower deployment on loopback: a SuperLink and two SuperNodes, each a process of its own.

``python deploy_flower.py OUT`` runs `flower_app` wrapped by `overheard.flower.record`, writes what
the clients and the server saw to OUT, and ends every process that it started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
PROJECT = """
[project]
name = "recorded"
version = "1.0.0"
description = "a federation of two"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "deployed:server_app"
clientapp = "deployed:client_app"
"""
APP = """
import os
from pathlib import Path

import flower_app
from overheard.flower import record

OUT = Path(os.environ["OVERHEARD_TEST_OUT"])
client_app = flower_app.client_app
server_app = flower_app.server(
    lambda s: record(s, OUT / "run"), OUT / "final.npz", rounds=1, clients=2
)
"""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def main(out: Path) -> int:
    link, *nodes = free_ports(3)
    final = out / "final.npz"
    app, home, digests = out / "app", out / "home", out / "digests"
    for folder in (app, home, digests):
        folder.mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "deployed.py").write_text(APP)
    for file in (HERE / "flower_app.py", HERE.parent / "helpers" / "exact_training.py"):
        shutil.copy(file, app)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        "insecure = true\n"
    )
    os.environ |= {
        "FLWR_HOME": str(home),
        "OVERHEARD_TEST_OUT": str(out),
        "OVERHEARD_TEST_DIGESTS": str(digests),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        with (out / f"{name}.log").open("wb") as log:
            command = [str(BIN / words[0]), *words[1:]]
            started.append(subprocess.Popen(command, cwd=out, stdout=log, stderr=log))
        return started[-1]

    try:
        server = start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1",
            "--port", str(link), "--disable-runtime-dependency-installation",
        )  # fmt: skip
        for number, port in enumerate(nodes):
            start(
                f"supernode-{number}", "flower-supernode", "--insecure",
                "--superlink", f"127.0.0.1:{link}", "--host", "127.0.0.1", "--port", str(port),
                "--node-config", f"partition-id={number}",
            )  # fmt: skip
        with socket.socket() as probe:
            while server.poll() is None and probe.connect_ex(("127.0.0.1", link)):
                time.sleep(0.1)
        run = start("flwr", "flwr", "run", str(app), "here", "--stream")
        run.wait()
        while not run.returncode and not final.exists() and server.poll() is None:
            time.sleep(0.1)
        return run.returncode
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # with the processes that they started in turn
        for process in started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


if __name__ == "__main__":
    os.setpgid(0, 0)  # a group of its own, which ends with it
    sys.exit(main(Path(sys.argv[1])))
