#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh N COMMAND...: runs COMMAND on N hosts, which are network namespaces joined by a bridge.
#
# Host K has the address 10.77.0.(K+1) on its interface net0, and COMMAND finds K in HOST there. What each host
# ended with is printed; the exit code is that of the first that did not end with 0. Namespaces and processes go
# with this script, however it ends, and nothing of the machine's own network changes. Needs root.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  exec unshare -nmpf --kill-child --mount-proc bash "$0" --inside "$@"
fi
count=$2
shift 2
mount -t tmpfs tmpfs /run # where `ip netns` keeps its names
ip link add br0 type bridge
ip link set br0 up
for ((k = 0; k < count; k++)); do
  ip netns add "h$k"
  ip link add "port$k" type veth peer name net0 netns "h$k"
  ip link set "port$k" master br0 up
  ip -n "h$k" addr add "10.77.0.$((k + 1))/24" dev net0
  ip -n "h$k" link set net0 up
  ip -n "h$k" link set lo up
done
pids=()
for ((k = 0; k < count; k++)); do
  HOST=$k ip netns exec "h$k" "$@" &
  pids+=($!)
done
result=0
for ((k = 0; k < count; k++)); do
  code=0
  wait "${pids[k]}" || code=$?
  echo "host $k ended with $code"
  [ "$result" -ne 0 ] || result=$code
done
exit "$result"
