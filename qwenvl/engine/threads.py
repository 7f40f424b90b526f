"""How many threads the model gets: the least of CPU quota, affinity and physical cores. Knows nothing of torch."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CPUS = Path("/sys/devices/system/cpu")


def default_threads() -> int:
    """Threads that do useful work here, at least one."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(n for n in (cpu_quota(), affinity, physical_cores()) if n))


def limit_threads(wanted: int) -> None:
    """Let the libraries that are imported from now on start `wanted` threads each, 0 = as many as do useful work."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(wanted or default_threads())


def cpu_quota(root: Path = CGROUP) -> int | None:
    """Whole CPUs that the container may use (cgroup v2, then v1); None without a quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdecimal():  # `max` in v2, -1 in v1: no quota
        return None
    return max(1, math.floor(int(quota) / int(period)))


def physical_cores(root: Path = CPUS) -> int | None:
    """Cores, counting hyper-threads once; None where the kernel does not say."""
    cores = set()
    for topology in root.glob("cpu[0-9]*/topology"):
        try:
            package = (topology / "physical_package_id").read_text().strip()
            cores.add((package, (topology / "core_id").read_text().strip()))
        except OSError:
            continue
    return len(cores) or None
