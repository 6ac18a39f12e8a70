"""The one seed tree: every random draw of the project comes from a named stream of it.

In: a root (suite, training seed) and a path of names and numbers. Out: a 64-bit key, and from a key
counter-based uniforms that depend on nothing but (key, position): not on batch size, workers, shards or order.
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stream(root: int, *path: str | int) -> int:
    """Return the 64-bit key of the stream ``path`` under ``root``.

    Each part is hashed with its type and length, so that no two paths share a pre-image: ``("a", 1)``, ``("a1",)``
    and ``("a", "1")`` are three different streams.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (root, *path):
        text = f"{type(part).__name__}:{part}".encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest(), "big")


def root(suite: str, seed: int) -> int:
    """Return the root of (suite, training seed); it names no method, so that methods are paired."""
    return stream(0, "suite", suite, "seed", seed)


def uniform(keys: np.ndarray, position: int | np.ndarray) -> np.ndarray:
    """Return float64 uniforms in (0, 1), one for each of ``keys`` (uint64) at ``position`` (0, 1, ...).

    SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) as a counter-based
    generator: the finaliser of key + (position + 1) * golden ratio. The top 52 bits, centred, are exact in float64 and
    never give 0 or 1.
    """
    with np.errstate(over="ignore"):
        z = np.asarray(keys, np.uint64) + (np.asarray(position, np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def generator(root_key: int, *path: str | int) -> np.random.Generator:
    """Return a numpy generator for the stream, for draws whose number is not known beforehand."""
    return np.random.Generator(np.random.Philox(key=stream(root_key, *path)))
