"""The kind of computation that answers come from: what must be the same for several attempts to make one result."""

import msgspec

HASH, SHORT = 40, 10
"""Digits of a hash, and how many of them are shown."""


class Computation(msgspec.Struct, frozen=True, kw_only=True):
    """computation.json: the kind of computation that an attempt's answers come from, written when the model is loaded.

    Answers of two kinds are never put into one result: they may differ in their last digits.
    """

    schema: int = 1
    """Version of the meaning of these fields."""
    unmask: str | None = None
    """Version of Unmask."""
    commit: str | None = None
    """Commit of the checkout that the code belongs to; null for an installed package, `unknown` where git told none."""
    diff_sha256: str | None = None
    """Digest of the difference from that commit; null where there is none, and `unknown` where git did not tell."""
    code_sha256: str | None = None
    """Digest of the code itself, which decides whether two kinds have the same; null where it was not recorded yet."""
    torch: str | None = None
    """Version of torch."""
    device: str | None = None
    """Kind of device, such as cpu or cuda."""
    dtype: str | None = None
    """Number format of weights and activations."""

    def change_to(self, other: "Computation") -> str:
        """In what another kind differs, such as `dtype float16 -> bfloat16`; empty where it is the same kind."""
        before, after = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        passed_over: tuple[str, ...] = ()
        if self.code_sha256 is None or other.code_sha256 is None:
            passed_over = ("code_sha256",)
        elif self.code_sha256 == other.code_sha256:
            passed_over = (
                "commit",
                "diff_sha256",
            )  # git may be silent on one node, and a commit touch notes alone
        changes = [name for name in after if before[name] != after[name] and name not in passed_over]
        return ", ".join(f"{name} {_short(before[name])} -> {_short(after[name])}" for name in changes)


def _short(value: str | int | None) -> str:
    text = "unknown" if value is None else str(value)
    return text[:SHORT] if len(text) >= HASH else text
