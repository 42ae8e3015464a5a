"""A sweep and an audit on a Ray cluster of two nodes:
``python ray_cluster.py SWEEP_AS_JSON OUT audit ...``, the words of the command.

Only for a network of one's own with loopback alone: Ray listens on every interface that it sees.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial

import ray
from ray.cluster_utils import Cluster

from overheard.sweep.grid import parse_sweep
from overheard.sweep.run import sweep
from overheard.workers import on_cluster


def killed_once(mark: str, number: int) -> int:
    """What a worker that is killed in the middle of its first task was asked for."""
    if not os.path.exists(mark):
        os.mkdir(mark)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


if __name__ == "__main__":
    size = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=size)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
        cluster.wait_for_nodes()
        sweep(parse_sweep(json.loads(sys.argv[1])), sys.argv[2], cluster.address)
        words = [sys.executable, "-m", "overheard", *sys.argv[3:], "--workers", cluster.address]
        subprocess.run(words, check=True)
        again = on_cluster(
            partial(killed_once, sys.argv[2] + ".mark"), [(1,), (2,)], cluster.address
        )
        sys.stdout.write(f"killed, and yet {sorted(again)}\n")
        ray.init(cluster.address, log_to_driver=False)
        sys.stdout.write(f"{sum(node['Alive'] for node in ray.nodes())} nodes\n")
        ray.shutdown()
    finally:
        cluster.shutdown()
