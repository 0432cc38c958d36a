"""dask-cuda's LocalCUDACluster as its documentation of 26.10 has it: its arguments, and what it does with them.

NVIDIA's needs a driver. This one checks what it is given as NVIDIA's does, and starts workers each of which sees
another GPU first; theirs are pretended (``on_worker``).
"""

from __future__ import annotations

import copy
import inspect
import os
from typing import Any

from distributed import LocalCluster, Nanny, Worker

GPUS = "0,1"  # of the pretended machine
PRELOAD = "tests.cupy_double.on_worker"  # NVIDIA's is dask_cuda.initialize
# https://docs.rapids.ai/api/dask-cuda/stable/api/: its own arguments and their defaults; others are LocalCluster's.
DOCUMENTED: dict[str, Any] = {
    "CUDA_VISIBLE_DEVICES": None,
    "n_workers": None,
    "threads_per_worker": 1,
    "memory_limit": "auto",
    "device_memory_limit": "default",
    "enable_cudf_spill": False,
    "cudf_spill_stats": 0,
    "local_directory": None,
    "protocol": None,
    "enable_tcp_over_ucx": None,
    "enable_infiniband": None,
    "enable_nvlink": None,
    "enable_rdmacm": None,
    "rmm_pool_size": None,
    "rmm_maximum_pool_size": None,
    "rmm_managed_memory": False,
    "rmm_async": False,
    "rmm_allocator_external_lib_list": None,
    "rmm_release_threshold": None,
    "rmm_log_directory": None,
    "rmm_track_allocations": False,
    "log_spilling": False,
    "pre_import": None,
}
PASSED_ON = (
    "local_directory",
    "protocol",
    "memory_limit",
    "threads_per_worker",
)  # to LocalCluster, as they are


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return all documented arguments; complain of what NVIDIA's cluster or Dask's would refuse."""
    known = set(DOCUMENTED) | {
        name for one in (LocalCluster, Nanny, Worker) for name in inspect.signature(one.__init__).parameters
    }
    if unknown := given.keys() - known - {"self", "kwargs"}:
        raise TypeError(f"LocalCUDACluster() got an unexpected keyword argument {sorted(unknown)}")
    found = DOCUMENTED | given
    if found["threads_per_worker"] < 1:
        raise ValueError("threads_per_worker must be higher than 0.")
    if found["n_workers"] is not None and found["n_workers"] < 1:
        raise ValueError("Number of workers cannot be less than 1.")
    if not given.get("processes", True):
        raise ValueError("Processes are necessary in order to use multiple GPUs with Dask")
    if not isinstance(given.get("preload", []), list):  # it adds one to them
        raise TypeError("can only concatenate list to list")
    return found


class LocalCUDACluster(LocalCluster):
    """Workers of this machine, one for each GPU."""

    def __init__(self, **given: Any) -> None:
        found = checked(given)
        visible = found["CUDA_VISIBLE_DEVICES"] or GPUS
        self.visible = visible.split(",") if isinstance(visible, str) else [str(one) for one in visible]
        rest = {
            name: value for name, value in given.items() if name not in DOCUMENTED and name != "processes"
        }
        rest |= {name: found[name] for name in PASSED_ON}
        super().__init__(n_workers=0, processes=True, **rest)
        options = self.new_spec["options"]
        options["preload"] = [*options.get("preload", []), PRELOAD]
        self.scale(found["n_workers"] or len(self.visible))
        self.sync(self._correct_state)

    def new_worker_spec(self) -> dict[str, Any]:
        """Return a worker that sees the GPUs from its own on."""
        number = min(set(range(len(self.visible))) - set(self.worker_spec))
        spec = copy.deepcopy(self.new_spec)
        order = self.visible[number:] + self.visible[:number]
        spec["options"]["env"] = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(order)}
        return {number: spec}
