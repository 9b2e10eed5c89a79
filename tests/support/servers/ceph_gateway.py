"""A real object store on this machine: Ceph with its S3 gateway (Debian: ceph-mon, ceph-osd, radosgw).

One monitor, one storage daemon that keeps its objects in memory, one gateway; all listen on 127.0.0.1. The gateway
can be killed and started again, and loses nothing by it. `make scale` installs the packages.
"""

import atexit
import shutil
import socket
import subprocess
import time
import uuid
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import boto3

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
KEY, SECRET = "key", "secret-of-the-store"
_START_S, _STEP_S = 60.0, 0.1
_MEMORY = 2 << 30
_SETTINGS = """[global]
fsid = {cluster}
mon_host = [v2:127.0.0.1:{monitor}]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
mon_allow_pool_size_one = true
mon_data_avail_crit = 0
osd_pool_default_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = {memory}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
log_file = {folder}/$name.log
log_to_file = true
mon_cluster_log_file = {folder}/cluster.log
admin_socket = {folder}/$name.asok
pid_file =
run_dir = {folder}
crash_dir = {folder}
mon_data = {folder}/mon
osd_data = {folder}/osd
keyring = {folder}/keyring
rgw_data = {folder}/gateway
rgw_frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
rgw_enable_usage_log = false
rgw_enable_ops_log = false
"""


def missing() -> list[str]:
    """Programs of Ceph that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class CephGateway:
    """The processes of a cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        monitor, self._port = _free_ports(2)
        self._cluster = str(uuid.uuid4())
        self._settings = folder / "ceph.conf"
        self._settings.write_text(
            _SETTINGS.format(
                cluster=self._cluster, folder=folder, monitor=monitor, gateway=self._port, memory=_MEMORY
            )
        )
        self._monitor_address = f"[v2:127.0.0.1:{monitor}]"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Make the cluster and its user. Takes about 15 seconds."""
        monmap, osd = self.folder / "monmap", str(uuid.uuid4())
        self._run(
            "monmaptool", "--create", "--fsid", self._cluster, "--addv", "a", self._monitor_address, str(monmap)
        )
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(monmap))
        self._spawn("ceph-mon", "-i", "a")
        self._run("ceph", "osd", "new", osd, "0")
        (self.folder / "osd").mkdir()
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._spawn("ceph-osd", "-i", "0")
        user = ["--uid=cot", "--display-name=cot", f"--access-key={KEY}", f"--secret-key={SECRET}"]
        self._run("radosgw-admin", "user", "create", *user)
        self.start_gateway()

    def with_empty_bucket(self, name: str) -> str:
        """The endpoint, after `name` was made or emptied."""
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        bucket = boto3.resource("s3", endpoint_url=self.endpoint, **keys).Bucket(name)
        bucket.create()
        bucket.objects.all().delete()
        return self.endpoint

    def start_gateway(self) -> None:
        process = self._spawn("radosgw", "-n", "client.gateway")
        ends = time.monotonic() + _START_S
        while not _answers(self.endpoint):
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the gateway did not start; see {self.folder}")
            time.sleep(_STEP_S)

    def kill_gateway(self) -> None:
        """SIGKILL."""
        gateway = self._processes.pop("radosgw")
        gateway.kill()
        gateway.wait()

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self._processes[name].kill()
            self._processes.pop(name).wait()

    def _run(self, *command: str) -> None:
        done = subprocess.run(self._of_cluster(*command), capture_output=True, text=True, timeout=_START_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")

    def _spawn(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{command[0]}.out").open("ab") as out:
            ends_with_us = ["setpriv", "--pdeathsig", "KILL"]
            process = subprocess.Popen([*ends_with_us, *self._of_cluster(*command), "-f"], stdout=out, stderr=out)
        self._processes[command[0]] = process
        return process

    def _of_cluster(self, *command: str) -> list[str]:
        program, *arguments = command
        return [program, *arguments] if program == "monmaptool" else [program, "-c", str(self._settings), *arguments]


@cache
def of_this_process() -> CephGateway:
    """A cluster that lives as long as this process."""
    folder = TemporaryDirectory(prefix="ceph-")
    gateway = CephGateway(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(gateway.stop)
    gateway.start()
    return gateway


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(endpoint: str) -> bool:
    try:
        urlopen(endpoint, timeout=5).read()
    except HTTPError:
        return True
    except (URLError, OSError):
        return False
    return True
