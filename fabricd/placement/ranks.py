"""The rank order in the formats launchers read: Slurm hostfile, Open MPI rankfile and hostfile, torchrun."""

from __future__ import annotations

from collections.abc import Sequence


def slurm_hostfile(nodes: Sequence[str], gpus: int) -> str:
    """One line a task, for ``SLURM_HOSTFILE`` with ``srun -m arbitrary``: rank order is line order."""
    return "".join(f"{node}\n" * gpus for node in nodes)


def openmpi_rankfile(nodes: Sequence[str], gpus: int) -> str:
    """``rank N=host slot=M`` for every rank (``mpirun --rankfile``)."""
    return "".join(f"rank {i * gpus + s}={node} slot={s}\n" for i, node in enumerate(nodes) for s in range(gpus))


def openmpi_hostfile(nodes: Sequence[str], gpus: int) -> str:
    """``host slots=N`` in rank order (``mpirun --hostfile``, MPIJob)."""
    return "".join(f"{node} slots={gpus}\n" for node in nodes)


def torchrun(nodes: Sequence[str], gpus: int) -> str:
    """torchrun reads no rank file: what each node must be started with."""
    common = f"--nnodes={len(nodes)} --nproc_per_node={gpus} --master_addr={nodes[0]}" if nodes else ""
    return "".join(f"{node}: torchrun {common} --node_rank={i}\n" for i, node in enumerate(nodes))


def torchrun_env(nodes: Sequence[str], gpus: int) -> dict[str, dict[str, str]]:
    """The same as environment variables that torchrun reads as defaults of its options, by node."""
    return {
        node: {
            "PET_NNODES": str(len(nodes)),
            "PET_NPROC_PER_NODE": str(gpus),
            "PET_NODE_RANK": str(i),
            "PET_MASTER_ADDR": nodes[0],
        }
        for i, node in enumerate(nodes)
    }


def read_hostfile(text: str) -> list[str]:
    """Nodes in rank order from a Slurm hostfile, an Open MPI hostfile or rankfile, or one name a line."""
    nodes: list[str] = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        name = words[1].partition("=")[2] if words[0] == "rank" and len(words) > 1 else words[0]
        if name and (not nodes or nodes[-1] != name):
            nodes.append(name)
    return nodes
