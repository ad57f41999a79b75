#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm_cluster.sh DIR COMMAND...: runs COMMAND beside a Slurm of four nodes n0 to n3, all on this host.
#
# Everything lives in network, PID and mount namespaces of its own: no port of this host is used, names n0 to n3
# resolve inside only, and when COMMAND ends or this is killed, every daemon and task is killed too. Needs root.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  exec unshare -npf --kill-child --mount-proc bash "$0" --inside "$@"
fi
dir=$2
shift 2
mkdir -p "$dir/state" "$dir/log"
ip link set lo up
ip addr add 198.51.100.1/32 dev lo # with loopback addresses alone, Slurm resolves no name
host=$(hostname -s)
printf '127.0.0.1 localhost %s n0 n1 n2 n3\n' "$host" >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts
export SLURM_CONF=$dir/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=ait
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool_%n
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/slurmd_%n.pid
SlurmctldLogFile=$dir/log/ctld.log
SlurmdLogFile=$dir/log/%n.log
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait=3
InactiveLimit=0
MailProg=/bin/true
NodeName=n[0-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17000-17003] CPUs=2 RealMemory=2000
PartitionName=p Nodes=n[0-3] Default=YES MaxTime=INFINITE State=UP OverTimeLimit=0
CONF
slurmctld -D -c -f "$SLURM_CONF" >"$dir/log/ctld.out" 2>&1 &
for node in 0 1 2 3; do slurmd -D -N n$node -f "$SLURM_CONF" >"$dir/log/n$node.out" 2>&1 & done
for ((i = 0; i < 600; i++)); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 4 ] && break
  sleep 0.1
done
[ "$(sinfo -h -t idle -o %D)" = 4 ] || { tail -n 20 "$dir"/log/*; exit 99; }
"$@"
