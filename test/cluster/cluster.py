#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Several hosts on one machine, for MPI jobs: each is a process in network, UTS, IPC, mount and PID namespaces of its own,
with its own /dev/shm and /sys, joined by veth links (eth0, and eth1 in a network of its own) to bridges in a control namespace,
where the launcher runs.

    cluster.py [--hosts N] [--qdisc "netem delay 1ms loss 0.1%"] mpich|openmpi RANKS_PER_HOST COMMAND ...

runs the command under mpiexec on N hosts with so many ranks each. Needs root and iproute2.
"""
import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENT = Path(__file__).resolve().parent / "agent.sh"
NETWORKS = ["10.77.0", "10.77.1"]  # of eth0, which launchers use, and of eth1
# PID namespaces want a process of their own to reap orphans; sh does.
HOST = "mount -t tmpfs tmpfs /dev/shm && mount -t sysfs sysfs /sys && hostname {name} && ip link set lo up && echo up && " \
       "while :; do sleep 1000 & wait $!; done"


class Refused(Exception):
    """This machine does not let us make such hosts; the text says what failed."""


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        raise Refused(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def start(namespaces, script):
    """A process in new namespaces; returns it and the number of the one that is inside."""
    process = subprocess.Popen(["unshare", *namespaces, "--", "/bin/sh", "-c", script], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    if process.stdout.readline().strip() != "up":
        process.kill()
        raise Refused(f"unshare {' '.join(namespaces)}: {process.stderr.read().strip()}")
    children = run("pgrep", "-P", process.pid).split() if "--fork" in namespaces else [process.pid]
    return process, int(children[0])


class Cluster:
    def __init__(self, hosts, qdisc=None):
        self.addresses = [f"{NETWORKS[0]}.{i + 1}" for i in range(hosts)]
        self.qdisc = qdisc
        self.processes = []

    def __enter__(self):
        for tool in ("unshare", "nsenter", "ip"):
            if shutil.which(tool) is None:
                raise Refused(f"there is no {tool}")
        self.state = tempfile.mkdtemp(prefix="gpucoll-cluster-")
        try:
            self.set_up()
        except BaseException:
            self.tear_down()
            raise
        return self

    def __exit__(self, *_):
        self.tear_down()

    def set_up(self):
        bridges = [f"ip link add br{i} type bridge && ip addr add {network}.254/24 dev br{i} && ip link set br{i} up"
                   for i, network in enumerate(NETWORKS)]
        process, self.control = start(["--net"], " && ".join(["ip link set lo up", *bridges, "echo up", "exec sleep 100000"]))
        self.processes.append(process)
        self.pids = []
        for i, address in enumerate(self.addresses):
            process, pid = start(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc"],
                                 HOST.format(name=f"host{i}"))
            self.processes.append(process)
            self.pids.append(pid)
            Path(self.state, address).write_text(f"{pid}\n")
            for link in range(len(NETWORKS)):
                self.connect(i, link)
        for i, pid in enumerate(self.pids):
            for link in range(len(NETWORKS)):
                self.wait_until_up(pid, f"eth{link}")
                self.wait_until_up(self.control, f"veth{i}.{link}")

    def connect(self, i, link):
        end = f"eth{link}"
        self.on_bridges("ip", "link", "add", f"veth{i}.{link}", "type", "veth", "peer", "name", end, "netns", self.pids[i])
        self.on_bridges("ip", "link", "set", f"veth{i}.{link}", "master", f"br{link}", "up")
        self.on_host(i, "ip", "addr", "add", f"{NETWORKS[link]}.{i + 1}/24", "dev", end)
        self.on_host(i, "ip", "link", "set", end, "up")
        if self.qdisc:
            self.on_host(i, "tc", "qdisc", "add", "dev", end, "root", *shlex.split(self.qdisc))

    def set_link(self, i, link, state):
        """Pull the cable of the host's link, or put it in again: "down" or "up"."""
        self.on_bridges("ip", "link", "set", f"veth{i}.{link}", state)

    def on_host(self, i, *command):
        """Run a command in the host's network."""
        return run("nsenter", "--target", self.pids[i], "--net", *command)

    def on_bridges(self, *command):
        return run("nsenter", "--target", self.control, "--net", *command)

    def wait_until_up(self, pid, link):
        for _ in range(100):
            if "state UP" in run("nsenter", "--target", pid, "--net", "ip", "link", "show", link):
                return
            time.sleep(0.05)
        raise Refused(f"{link} does not come up")

    def tear_down(self):
        for process in reversed(self.processes):
            subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()
        shutil.rmtree(self.state, ignore_errors=True)

    def command(self, mpi, ranks, options=(), launcher=None):
        """The launcher's command line, in the control namespace, for so many ranks on each host; ranks are placed host after
        host. `launcher`: another one than that of the MPI's name."""
        hosts = ",".join(f"{a}:{n}" for a, n in zip(self.addresses, ranks) if n)
        inside = ["nsenter", "--target", str(self.control), "--net", "env", f"CLUSTER_STATE={self.state}"]
        if mpi.startswith("mpich"):
            name = launcher or ("mpiexec.mpich" if shutil.which("mpiexec.mpich") else "mpiexec")
            return [*inside, name, "-launcher", "ssh", "-launcher-exec", str(AGENT), "-iface", "br0", *options, "-n",
                    str(sum(ranks)), "-hosts", hosts]
        name = launcher or ("mpirun.openmpi" if shutil.which("mpirun.openmpi") else "mpirun")
        network = f"{NETWORKS[0]}.0/24"
        if mpi == "openmpi5":
            return [*inside, name, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--prtemca", "plm_ssh_agent", str(AGENT),
                    "--prtemca", "plm_ssh_no_tree_spawn", "1", "--prtemca", "prte_if_include", network, "--mca", "btl_tcp_if_include", network,
                    *options, "-n", str(sum(ranks)), "--host", hosts]
        return [*inside, name, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "op", "^avx", "--mca", "plm_rsh_agent",
                str(AGENT), "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "btl_tcp_if_include", network, "--mca",
                "oob_tcp_if_include", network, *options, "-n", str(sum(ranks)), "--host", hosts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--qdisc", help="what tc(8) is to do to what each host sends: netem ..., tbf ...")
    parser.add_argument("mpi", choices=["mpich", "openmpi"])
    parser.add_argument("ranks", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # and so leave the cluster, which takes it down
    try:
        with Cluster(arguments.hosts, arguments.qdisc) as cluster:
            command = cluster.command(arguments.mpi, [arguments.ranks] * arguments.hosts)
            sys.exit(subprocess.run([*command, *arguments.command], env=os.environ).returncode)
    except Refused as refused:
        sys.exit(f"no such hosts here: {refused}")


if __name__ == "__main__":
    main()
