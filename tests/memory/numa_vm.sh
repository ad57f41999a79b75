#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Boots a machine with several NUMA nodes under qemu (software emulation, no privilege) and runs one program in it.
#
#   numa_vm.sh --cache DIR [--memory MIB,…] [--cpus COUNT,…] [--append KERNEL_OPTIONS] PROGRAM [ARG…]
#
# --memory: MiB of each node, 0 for one without memory; --cpus: CPUs of each node, 0 for one without. The program goes
# into the machine with its libraries, runs as root, and has /proc, /sys, /dev and /tmp. Its output and its exit status
# are passed on. Exit 77: the machine cannot be had, and the last line says why.
# The kernel is Debian's for the cloud, downloaded into DIR once and not installed.
set -euo pipefail

skip() { echo "numa_vm: $*"; exit 77; }

cache='' memory=512,512 cpus=1,1 append=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --cache) cache=$2 ;;
    --memory) memory=$2 ;;
    --cpus) cpus=$2 ;;
    --append) append=$2 ;;
    *) echo "numa_vm: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[[ -n $cache && $# -gt 0 ]] || { echo "numa_vm: --cache and a program are needed" >&2; exit 2; }

for tool in qemu-system-x86_64 cpio gzip; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: qemu-system-x86 cpio)"
done
busybox=$(command -v busybox) || skip "busybox is not installed (Debian: busybox-static)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernel_package() {
  { apt-cache depends linux-image-cloud-amd64 2>/dev/null || true; } | awk '/Depends:/ { print $2; exit }'
}

fetch_kernel() {
  command -v apt-get dpkg-deb >/dev/null || skip "this is not Debian: put a kernel at $cache/vmlinuz"
  local package
  package=$(kernel_package)
  [[ -n $package || $(id -u) -ne 0 ]] || { apt-get update >/dev/null 2>&1 || true; package=$(kernel_package); }
  [[ -n $package ]] || skip "apt knows no linux-image-cloud-amd64: run apt-get update as root"
  mkdir "$work/kernel"
  (cd "$work/kernel" && apt-get download -qq "$package") >/dev/null 2>&1 || skip "the download of $package failed"
  (cd "$work/kernel" && dpkg-deb --fsys-tarfile "$package"_*.deb | tar -xf - --wildcards './boot/vmlinuz-*')
  mv "$work"/kernel/boot/vmlinuz-* "$cache/vmlinuz.$$"
  mv "$cache/vmlinuz.$$" "$cache/vmlinuz"  # whole or not there
}
mkdir -p "$cache"
[[ -e $cache/vmlinuz ]] || fetch_kernel

# The initramfs: busybox, the program, and what it is linked with.
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp}
cp -L "$busybox" "$root/bin/busybox"
cp -L "$1" "$root/bin/program"
shift
while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done < <({ ldd "$busybox" || true; ldd "$root/bin/program" || true; } 2>/dev/null | grep -o '/[^ ]*' | sort -u)
printf -v arguments '%q ' "$@"
cat >"$root/init" <<TEXT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/program $arguments
echo "numa-vm exit \$?"
/bin/busybox poweroff -f
TEXT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"

IFS=, read -ra node_memory <<<"$memory"
IFS=, read -ra node_cpus <<<"$cpus"
nodes=() total=0 count=0
for i in "${!node_memory[@]}"; do
  node="node,nodeid=$i"
  if [[ ${node_cpus[i]} -gt 0 ]]; then
    node+=",cpus=$count-$((count + node_cpus[i] - 1))"
    count=$((count + node_cpus[i]))
  fi
  if [[ ${node_memory[i]} -gt 0 ]]; then
    nodes+=(-object "memory-backend-ram,id=memory$i,size=${node_memory[i]}M")
    node+=",memdev=memory$i"
    total=$((total + node_memory[i]))
  fi
  nodes+=(-numa "$node")
done

timeout "${AIT_NUMA_VM_TIMEOUT:-150}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "${total}M" -smp "$count" \
  "${nodes[@]}" -kernel "$cache/vmlinuz" -initrd "$work/initrd" \
  -append "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check $append" \
  -display none -serial stdio -monitor none -no-reboot -net none </dev/null 2>&1 | tr -d '\r' >"$work/log" || true
grep -v '^numa-vm exit ' "$work/log" || true
status=$(sed -n 's/^numa-vm exit \([0-9]*\)$/\1/p' "$work/log")
[[ -n $status ]] || { echo "numa_vm: the machine ended before the program did"; exit 125; }
exit "$status"
