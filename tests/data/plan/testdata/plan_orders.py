#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The orders of docs/resuming.md, written from that page: prints the vectors of the page and of the tests."""
import bisect
import fractions
import math

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def fold(d, w):
    return mix(((d ^ w) + GAMMA) & MASK)


def permutation(n, seed, epoch):
    base = mix((mix((seed + GAMMA) & MASK) + epoch) & MASK)
    keys = [mix((base + (r + 1) * GAMMA) & MASK) for r in range(8)]
    bits = max(8, (n - 1).bit_length())
    h = bits // 2
    low_bits = bits - h

    def at(x):
        while True:
            high, low = x >> low_bits, x & ((1 << low_bits) - 1)
            for r in range(0, 8, 2):
                high ^= mix(keys[r] ^ low) & ((1 << h) - 1)
                low ^= mix(keys[r + 1] ^ high) & ((1 << low_bits) - 1)
            x = high << low_bits | low
            if x < n:
                return x
    return at


POOL, BLOCKS, WINDOW, REST, GROUPS, ROWS = range(1, 7)


def seed_of(seed, role, number):
    return fold(fold(seed, role), number)


def block_order(begins, window, seed, epoch):
    """begins has the end as its last element."""
    count = len(begins) - 1
    order = permutation(count, seed_of(seed, BLOCKS, 0), epoch)
    placed = [order(k) for k in range(count)]
    items = []
    for w, first in enumerate(range(0, count, window)):
        inside = [i for b in placed[first:first + window] for i in range(begins[b], begins[b + 1])]
        within = permutation(len(inside), seed_of(seed, WINDOW, w), epoch)
        items += [inside[within(i)] for i in range(len(inside))]
    return items


def pattern(weights):
    divisor = math.gcd(*weights)
    weights = [w // divisor for w in weights]
    total, d = sum(weights), max(2 * len(weights) - 2, 1)
    had = [0] * len(weights)
    turns = []
    for place in range(1, total + 1):
        best = None
        for s, w in enumerate(weights):
            k = had[s] + 1
            if k > w:
                continue
            first = math.ceil(fractions.Fraction(((k - 1) * d + 1) * total, d * w))
            last = math.floor(fractions.Fraction((k * d - 1) * total, d * w)) + 1
            if first <= place and (best is None or last < best[0]):
                best = (last, s)
        had[best[1]] += 1
        turns.append(best[1])
    return turns


def mixture(sizes, weights, seed, count):
    """The first draws as (source, id), going through epochs of the sources."""
    turns, had, draws = pattern(weights), [0] * len(sizes), []
    for p in range(count):
        s = turns[p % len(turns)]
        epoch, at = divmod(had[s], sizes[s])
        draws.append((s, permutation(sizes[s], seed_of(seed, POOL, s), epoch)(at)))
        had[s] += 1
    return draws


def first_exhausted(sizes, weights):
    turns, had, place = pattern(weights), [0] * len(sizes), 0
    while True:
        s = turns[place % len(turns)]
        if had[s] == sizes[s]:
            return place
        had[s] += 1
        place += 1


def bucket(lengths, group, seed, epoch, window):
    ordered = sorted(range(len(lengths)), key=lambda i: lengths[i])
    whole, rest = divmod(len(ordered), group)
    runs = whole + (rest > 0)
    order = permutation(runs, seed_of(seed, GROUPS, window), epoch)
    short = order(runs - 1) if rest else None
    begins = [0]
    for run in range(runs):
        begins.append(begins[-1] + (rest if run == short else group))
    return [i for r in range(runs) for i in ordered[begins[order(r)]:begins[order(r) + 1]]]


def pack(lengths, budget, seed, epoch, window):
    rows, room = [], []  # room: sorted (left, row)
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = bisect.bisect_left(room, (lengths[i], 0))
        if at < len(room):
            left, row = room.pop(at)
        else:
            left, row = budget, len(rows)
            rows.append([])
        rows[row].append(i)
        bisect.insort(room, (max(left - lengths[i], 0), row))
    order = permutation(len(rows), seed_of(seed, ROWS, window), epoch)
    return [sorted(rows[order(r)]) for r in range(len(rows))]


def lengths_of(count):
    return [i * 7 % 11 for i in range(count)]


def folded(*words):
    d = 0
    for w in words:
        d = fold(d, w)
    return d


def subset(size, begin=0, stride=1):
    return folded(size, begin, stride)


def together(first_epoch, *members):
    """members: (source, digest of the subset, items)"""
    return folded(1, first_epoch, *[w for m in members for w in m])


def mixed(first_epoch, end, epoch_size, *members):
    """members: (source, digest of the subset, weight)"""
    return folded(2, first_epoch, end, *[w for m in members for w in m], epoch_size)


def listed(*ids):
    return folded(MASK, len(ids), *ids)


def plan_digest(seed, order, sources, stages, window_blocks=0, bucketing=(0, 0), packing=(0, 0)):
    """sources: what is folded of each"""
    words = [w for s in sources for w in s]
    return folded(2 if bucketing[0] else 1, seed, order, window_blocks, len(sources), *words, len(stages), *stages, *bucketing, *packing)


if __name__ == "__main__":
    begins = [0, 3, 7, 8, 12, 17, 20]
    print("blocks", block_order(begins, 2, 1, 0))
    print("blocks", block_order(begins, 2, 1, 1))
    print("blocks", block_order(begins, 4, 9, 5))
    uniform = list(range(0, 1_000_000, 1000)) + [1_000_000]
    far = block_order(uniform, 16, 7, 3)
    print("blocks of 1000", far[0], far[1], far[123456], far[999999])
    print("pattern 7 3", pattern([7, 3]))
    print("pattern 1 1 1", pattern([1, 1, 1]))
    print("pattern 5 3 1 1", pattern([5, 3, 1, 1]))
    print("pattern 6 2", pattern([6, 2]))
    print("mixture", mixture([5, 4], [7, 3], 1, 20))
    rest = permutation(4, seed_of(1, REST, 0), 0)
    whole = permutation(6, 1, 0)
    print("repeat 1.5 of 4", [i if i < 4 else rest(i - 4) for i in map(whole, range(6))])
    lengths = lengths_of(12)
    print("bucket", bucket(lengths, 5, 1, 0, 0), [lengths[i] for i in bucket(lengths, 5, 1, 0, 0)])
    print("pack", pack(lengths, 12, 1, 0, 0))
    order = permutation(24, 1, 0)
    ids = [order(i) for i in range(24)]
    second = [ids[12 + i] for row in pack([i * 7 % 11 for i in ids[12:]], 12, 1, 0, 1) for i in row]
    print("second window packed", second)
    one, two = (0x1234, 1000), (0x5678, 60)
    digests = [
        plan_digest(1, 0, [one], [together(0, (0, subset(1000), 1000))]),
        plan_digest(1, 1, [one], [together(0, (0, subset(1000), 1000))]),
        plan_digest(1, 2, [(*one, 2, 0, 500)], [together(0, (0, subset(1000), 1000))], window_blocks=16),
        plan_digest(1, 0, [one, two], [mixed(0, 0, first_exhausted([1000, 60], [7, 3]), (0, subset(1000), 7), (1, subset(60), 3)),
                                       together(5, (0, subset(33, 1, 3), 33), (1, listed(4, 9), 3))]),
        plan_digest(1, 0, [(*one, 9)], [together(0, (0, subset(1000), 1000))], bucketing=(100, 10)),
        plan_digest(1, 0, [(*one, 9)], [together(0, (0, subset(1000), 1000))], packing=(100, 2048)),
    ]
    print("digests", " ".join(f"{d:016x}" for d in digests))
