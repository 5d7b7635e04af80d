# SPDX-License-Identifier: BSD-3-Clause
"""Several hosts, in namespaces of this machine."""
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import socket
import threading
import time

import pytest

from conftest import BUILD, MPIS, assert_passed, environment, family, run_over_tcp, tool
from helpers import SURVIVING, assert_survived, count_calls, each_mpi, on_nodes


def is_up(interface):
    try:
        return (pathlib.Path("/sys/class/net") / interface / "operstate").read_text().strip() != "down"
    except OSError:
        return False


@pytest.mark.parametrize("mpi", MPIS)
def test_network_devices(run_mpi, mpi, tmp_path):
    """Ranks use the NICs of their GPUs, if all are there, and if the user has not chosen."""
    nic = next((name for _, name in socket.if_nameindex() if name != "lo" and is_up(name)), "lo")
    machine = tmp_path / "machine"
    machine.write_text("gpucoll-machine 1\nname three NICs\nnuma numa0\n  bridge pci0\n    gpu gpu0\n    nic gone0 net=25\n"
                       f"numa numa1\n  bridge pci1\n    gpu gpu1\n    nic {nic} net=25\n    nic slow0 net=1\n")
    env = {"GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_DEVICES": "2"}
    # Where one has no NIC that is there, all have all.
    for first, chosen in (("", 0), ("export CUDA_VISIBLE_DEVICES=1;", 4), (f"export CUDA_VISIBLE_DEVICES=1 UCX_NET_DEVICES={nic};", 0)):
        result = on_nodes(run_mpi, mpi, "0011", "gpucoll-bench", "allreduce", "-b", "8", "-e", "1M", "-f", "1024", "-n", "2", first=first, env=env)
        assert result.status == 0 and "0 wrong values" in result.output, result.output
        assert result.output.count(f"of the network's devices UCX uses {nic}") == chosen, result.output


def on_hosts(cluster, mpi, ranks, program, *arguments, env=(), options=(), timeout=300, when=None):
    """Run a test program on hosts of a cluster with so many ranks each."""
    rank_env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")],
                           {"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", "UCX_NET_DEVICES": "eth0", **dict(env)})
    launcher = tool(mpi, "mpiexec" if family(mpi) == "mpich" else "mpirun")
    command = [*cluster.command(mpi, ranks, options, launcher), "env", *[f"{k}={v}" for k, v in rank_env.items() if v is not None],
               str(BUILD / "mpi" / mpi / program), *map(str, arguments)]
    return run_over_tcp(command, os.environ.copy(), timeout, when)


@each_mpi
def test_cluster(make_cluster, mpi):
    """All collectives between hosts that share no memory, over TCP."""
    result = on_hosts(make_cluster(2), mpi, [2, 1], "test_coll", 1)
    assert_passed(result)
    assert "stepped" in result.output and "WARN " not in result.output, result.output


@each_mpi
def test_cluster_of_four(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(4), mpi, [1, 1, 1, 1], "test_agree", "fuzz", 50, 12))


@each_mpi
def test_cluster_random_calls(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(2), mpi, [2, 1], "test_agree", "fuzz", 150, 11, env={"GPUCOLL_EXEC": "fused"}))


@each_mpi
def test_cluster_mixed(make_cluster, mpi):
    assert_passed(on_hosts(make_cluster(2), mpi, [2, 1], "test_agree", "mixed", 60))


def listening_ports(ports):
    """Those of the range on which some process of this machine listens."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {port for line in lines if line.split()[3] == "0A" and (port := int(line.split()[1].split(":")[1], 16)) in ports}


def disturb(ports, started, ended, taken):
    """
    Once the file `started` is there, connect to all who listen, say something, and stay or go; over and over. (Who connects
    while UCX 1.13 makes a worker, ours or MPICH's, has it end the process.) `taken` gets the ports of those who took it.
    """
    source, connections = random.Random(len(taken)), []
    while not ended.wait(0.02):
        for port in listening_ports(ports) if started.exists() else ():
            try:
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                connections[-1].sendall(source.randbytes(source.choice([1, 7, 8, 100, 5000])))
                taken.append(port)
            except OSError:
                pass
        while len(connections) > 20:
            connections.pop(source.randrange(len(connections))).close()


@pytest.mark.parametrize("mpi", MPIS)
def test_strangers_on_the_port(run_mpi, mpi, tmp_path):
    """Others connect to UCX's ports, here on the loopback, and send what is no message: nothing happens, in as many jobs as it takes until they
    have done so often enough."""
    taken, jobs, ports = [], 0, {"UCX_TCP_PORT_RANGE": "27100-27399"}
    while len(taken) <= 20 and jobs < 20:
        jobs += 1
        started, ended = tmp_path / f"started-{jobs}", threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            stranger = pool.submit(disturb, range(27100, 27400), started, ended, taken)
            try:
                assert_passed(on_nodes(run_mpi, mpi, "001", "test_agree", "mixed", 2000, started, env=ports))
            finally:
                ended.set()
        stranger.result()
    assert len(taken) > 20


def listening(pid):
    """The IPv4 addresses, in words of /proc/net/tcp, at which a process listens."""
    owned = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            owned.add(os.readlink(fd))
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in owned]


@pytest.mark.parametrize("devices,only", [({}, {"0100007F"}), ({"UCX_NET_DEVICES": "all"}, None)], ids=["default", "all"])
def test_ports_on_one_interface(run_mpi, devices, only, tmp_path):
    """Anybody who reaches UCX's ports can send to them: in a job on one machine nobody else does. Open MPI's own ones are on all addresses."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        job = pool.submit(on_nodes, run_mpi, "openmpi", "01", "test_agree", "late", 4, first=f"echo $$ > {tmp_path}/$r;",
                          env={"GPUCOLL_DEBUG": "info", "GPUCOLL_TIMEOUT": "1", **devices})
        found = set()
        while not job.done():
            for path in tmp_path.iterdir():
                with contextlib.suppress(OSError):
                    found.update(listening(path.read_text().strip()))
            time.sleep(0.2)
    assert_passed(job.result())
    assert found - {"00000000"} and (only is None or found - {"00000000"} == only), found
    assert ("of the network's devices UCX uses lo" in job.result().output) == (not devices), job.result().output


@pytest.mark.parametrize("misled", [False, True])
def test_cluster_guesses_the_interface(make_cluster, misled):
    """One of them, on hosts that have several; and where on one host that does not lead to the others, all."""
    hosts = make_cluster(2)
    if misled:
        hosts.on_host(1, "ip", "link", "add", "away0", "type", "veth", "peer", "name", "away1")
        hosts.on_host(1, "ip", "addr", "add", "10.213.7.1/24", "dev", "away0")
        for end in ("away0", "away1"):
            hosts.on_host(1, "ip", "link", "set", end, "up")
        hosts.on_host(1, "ip", "route", "add", "default", "dev", "away0")
    try:
        result = on_hosts(hosts, "openmpi", [2, 1], "test_coll", 1, env={"GPUCOLL_DEBUG": "info", "UCX_NET_DEVICES": None})
    finally:
        if misled:
            hosts.on_host(1, "ip", "link", "del", "away0")
    assert_passed(result)
    assert result.output.count("devices UCX uses eth") + result.output.count("devices UCX uses away0") == 3, result.output
    assert ("not by away0 alone: now UCX chooses" in result.output) == misled, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") > 0, result.output


@each_mpi
def test_cluster_over_a_bad_link(make_cluster, mpi):
    """Packets are late, lost and out of order."""
    hosts = make_cluster(2, "netem delay 1ms 1ms loss 1% reorder 10%")
    assert_passed(on_hosts(hosts, mpi, [2, 1], "test_agree", "fuzz", 50, 13))


SOON = {"UCX_TCP_KEEPIDLE": "1s", "UCX_TCP_KEEPINTVL": "1s", "UCX_TCP_KEEPCNT": "3"}


@pytest.mark.parametrize("mpi,keepalive", [("mpich", SOON), ("openmpi", SOON), ("openmpi", {})], ids=["mpich", "openmpi", "openmpi-default"])
def test_link_goes_down(make_cluster, mpi, keepalive):
    """The network between nodes is cut in mid-call, not the launcher's: all ranks get an error, within some seconds of each
    other, before the launcher misses the first one, and half a minute unless the user says otherwise. Before that they report
    what they wait for."""
    hosts = make_cluster(2)
    script = SURVIVING.format(environment="").replace("sleep 1", "sleep 6")
    try:
        result = on_hosts(hosts, mpi, [2, 1], "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_agree", "cut",
                          env={"UCX_NET_DEVICES": "eth1", "GPUCOLL_TIMEOUT": "1", "GPUCOLL_EXEC": "fused" if mpi == "mpich" else "auto",
                               **keepalive}, timeout=60 if keepalive else 300,
                          when=("calls are under way", lambda: hosts.set_link(1, 1, "down")))
    finally:
        hosts.set_link(1, 1, "up")
    assert_survived(result, 3)
    awaited = r"(message \d+ of rank \d|room for message \d+ to rank \d|rank \d of 3 to|copies, or messages to other nodes)"
    assert re.search(rf"WARN .*MPI_Allreduce has waited 1 s for {awaited}", result.output), result.output


@each_mpi
def test_leaving_with_messages_in_the_process(make_cluster, mpi):
    """Over a slow link and with little room in sockets, a root's last message is still in its process when it leaves the call."""
    hosts = make_cluster(2, "tbf rate 50mbit burst 32k latency 400ms")
    env = {"GPUCOLL_CHANNELS": "4", "UCX_TCP_SNDBUF": "4K", "UCX_TCP_TX_SEG_SIZE": "64K", "UCX_TCP_RX_SEG_SIZE": "64K"}
    assert_passed(on_hosts(hosts, mpi, [1, 1], "test_agree", "leave", 20, env=env, timeout=60))


def test_cluster_without_a_way(make_cluster):
    """Each host has but an address of its own."""
    result = on_hosts(make_cluster(2), "openmpi", [2, 1], "test_coll", 1, env={"UCX_NET_DEVICES": "lo"})
    assert_passed(result)
    assert "UCX finds no way to rank" in result.output and count_calls(result.output, "accel", "MPI_Allreduce") == 0, result.output
