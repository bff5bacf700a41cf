#!/bin/bash
# Settings of a cluster, read by all job scripts. Edit this file, or name another one in MILLRACE_SITE.
# module purge; module load gcc openmpi hdf5   # what millrace was built with

# The network between nodes, if MPI or NCCL chooses a wrong one. `ip -br addr` and `ibstat` list them.
# export OMPI_MCA_btl_tcp_if_include=ib0       # Open MPI over TCP
# export UCX_NET_DEVICES=mlx5_0:1              # Open MPI with UCX
# export NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5

# Copies of the data on a disk or in the memory of each node. Each node expands the variables itself.
# export MILLRACE_CACHE='$TMPDIR/millrace'
