"""Kinds of hosts, each with the source of its numbers.

What no source gives is an assumption, and named as one: speeds are log-normal with sigma 0.25 where
nothing else is said; 4 of 100 hosts spoil 40 of 100 replicas, all others one of a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gridbot_simulator.world.hosts import HostModel, Stays

PRESETS: Mapping[str, HostModel] = MappingProxyType(
    {
        # Failure Trace Archive (Javadi et al., JPDC 2013), desktops of Notre Dame (nd07cpu).
        # Assumed: a job is lost when its desktop goes, as under HTCondor without checkpoints.
        "campus": HostModel(
            up=Stays(shape=0.45, hours=4.16),
            down=Stays(shape=0.51, hours=0.74),
            grid="campus",
        ),
        # Failure Trace Archive, Grid'5000 (g5k06).  Execution takes the whole time that a
        # replica is there (Silberstein et al., SC09, section 6).
        "collaborative": HostModel(
            up=Stays(shape=0.48, hours=14.37),
            down=Stays(shape=0.35, hours=0.47),
            grid="collaborative",
        ),
        # SC09, section 6: execution takes 0.01 to 1 of the time that a replica is there, 0.3 in
        # the mean.  Assumed: a beta distribution with these bounds; machines go and come as those
        # of volunteers.
        "community": HostModel(
            up=Stays(shape=1.0, hours=10.5),
            down=Stays(shape=1.0, hours=4.2),
            least_part=0.01,
            mean_part=0.3,
            keeps_work=True,
        ),
        # ComBoS (Alonso-Monsalve et al., 2018), its parameters for SETI@home: exponential times,
        # exponential speeds.  Assumed: none is slower than a twentieth of the mean.
        "volunteers": HostModel(
            up=Stays(shape=1.0, hours=10.5),
            down=Stays(shape=1.0, hours=4.2),
            speeds="exponential",
            keeps_work=True,
        ),
    }
)
